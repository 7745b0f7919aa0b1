"""Whom the agent works for: address and token, in a file that only its user can read."""

from __future__ import annotations

import json
import os

from mainstay.agent.client import Client
from mainstay.converge.host.state import StateDirectory, configuration_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "agent.json"


class NotEnrolled(Exception):
    """There is no usable enrolment; the text says how to get one."""


class Enrolment:
    def __init__(self, url: str, agent_id: str, token: str, ca_file: str | None = None) -> None:
        self.url = url
        self.agent_id = agent_id
        self.token = token
        self.ca_file = ca_file

    def client(self, connections: int = 8) -> Client:
        return Client(self.url, self.token, ca_file=self.ca_file, connections=connections)


def default_place(environ: Mapping[str, str]) -> str:
    return os.path.join(configuration_path(environ), FILE)


def enrol(url: str, code: str, place: str, ca_file: str | None) -> Enrolment:
    """Trades the code for a token. The file is made first: a token that cannot be kept would be lost."""
    folder = StateDirectory(os.path.dirname(os.path.abspath(place)))
    folder.directory()
    folder.write(f"{place}.trial", b"")
    os.unlink(f"{place}.trial")
    answer = Client(url, ca_file=ca_file).post("/enrol", {"code": code})
    enrolment = Enrolment(url.rstrip("/"), answer["agentId"], answer["token"], ca_file)
    document = {"url": enrolment.url, "agentId": enrolment.agent_id, "token": enrolment.token, "caFile": ca_file}
    folder.write(place, json.dumps(document, indent=1).encode() + b"\n", durable=True)
    return enrolment


def read_enrolment(place: str) -> Enrolment:
    way_out = "`mainstay agent enroll URL CODE` makes it"
    try:
        with open(place, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise NotEnrolled(f"{place} holds a token and others can read it: chmod 600 {place}")
            document = json.load(file)
        return Enrolment(document["url"], document["agentId"], document["token"], document.get("caFile"))
    except FileNotFoundError:
        raise NotEnrolled(f"this host is not enrolled: there is no {place}; {way_out}") from None
    except OSError as error:
        raise NotEnrolled(f"{place} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise NotEnrolled(f"{place} is not an enrolment; {way_out}") from None
