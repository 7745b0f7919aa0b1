"""The enrollment of the agent: address and token of its server, in a file that only its user can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from mainstay.agent.client import Client, ServerRefusal
from mainstay.converge.host.state import StateDirectory, configuration_path

FILE = "agent.json"


class NotEnrolled(Exception):
    """The enrollment is missing or unusable; the message names the way out."""


# No repr: it would show the token.
@dataclass(repr=False)
class Enrolment:
    url: str
    agent_id: str
    token: str
    ca_file: str | None
    insecure: bool
    # Name of the agent, known only at the enrollment; empty if the server does not report it.
    name: str = ""

    def client(self, connections: int = 8) -> Client:
        """Raises `PlainHttpRefused`."""
        return Client(self.url, self.token, ca_file=self.ca_file, insecure=self.insecure, connections=connections)


def default_path(environ: Mapping[str, str]) -> str:
    return os.path.join(configuration_path(environ), FILE)


def enrol(
    url: str, code: str, path: str, ca_file: str | None, *, insecure: bool = False, name: str | None = None
) -> Enrolment:
    """Exchanges the code for a token. Tests first that the file can be written: the code works only once. `name` None:
    the name of this host, if the code needs one."""
    client = Client(url, ca_file=ca_file, insecure=insecure)
    folder = StateDirectory(os.path.dirname(os.path.abspath(path)))
    folder.directory()
    folder.write(f"{path}.probe", b"")
    os.unlink(f"{path}.probe")
    answer = _exchange(client, code, name)
    document = {
        "url": client.url,
        "agentId": answer["agentId"],
        "token": answer["token"],
        "caFile": ca_file,
        "insecure": insecure,
    }
    folder.write(path, json.dumps(document, indent=1).encode() + b"\n", durable=True)
    agent_name = answer.get("agentName", "")
    return Enrolment(client.url, answer["agentId"], answer["token"], ca_file, insecure, agent_name)


def _exchange(client: Client, code: str, name: str | None) -> dict[str, str]:
    """Sends a name only where it is needed: older servers refuse the member."""
    try:
        return dict(client.post("/enrol", {"code": code} if name is None else {"code": code, "name": name}))
    except ServerRefusal as refusal:
        if name is not None or refusal.code != "name_required":
            raise
        return dict(client.post("/enrol", {"code": code, "name": os.uname().nodename}))


def read_enrolment(path: str) -> Enrolment:
    way_out = "run `mainstay agent enroll URL CODE`"
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise NotEnrolled(f"{path} contains a token and other users can read it: chmod 600 {path}")
            document = json.load(file)
        return Enrolment(
            document["url"],
            document["agentId"],
            document["token"],
            document.get("caFile"),
            insecure=document.get("insecure") is True,
        )
    except FileNotFoundError:
        raise NotEnrolled(f"this host is not enrolled: there is no {path}; {way_out}") from None
    except OSError as error:
        raise NotEnrolled(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise NotEnrolled(f"{path} is not an enrollment; {way_out}") from None
