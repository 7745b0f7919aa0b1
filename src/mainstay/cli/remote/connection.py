"""Shared by commands that call a control plane: login, client, search by name or id, error messages."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mainstay.agent.client import (
    Client,
    PlainHttpRefused,
    RateLimited,
    ServerRefusal,
    Unreachable,
    is_loopback,
    is_unencrypted,
)
from mainstay.cli.main import CommandRefused, print_json
from mainstay.cli.remote.connection_options import checked_ca_file
from mainstay.cli.remote.service_types import Members, allowed_text, allowed_values, terminal_states, walk_properties
from mainstay.cli.views.run_display import printable
from mainstay.foundation import Struct
from mainstay.foundation.private_files import write_private_file
from mainstay.foundation.suggestions import did_you_mean

EXIT_FAILED, EXIT_REFUSED = 1, 2
LOGIN_FILE = "login.json"
URL_VARIABLE, TOKEN_VARIABLE, CA_FILE_VARIABLE = "MAINSTAY_URL", "MAINSTAY_TOKEN", "MAINSTAY_CA_FILE"
SHORT_ID = 8
INVALID_PROPERTIES = "validation_failed"
# What messages call a record of a list, where it is not the name of the list.
_WORDS = {"/service-option-types": "option type", "/service-pool-sets": "pool set", "/service-pools": "pool"}
# What messages call them, and the command that lists them.
RECORDS_WITHOUT_NAMES = {
    "/rollouts": ("roll-out", "mainstay rollout list"),
    "/enrolment-codes": ("enrollment code with id", "mainstay agents codes"),
    "/jobs": ("job", "mainstay jobs"),
}
# Maximum number of items searched for a name or an id prefix.
SEARCH_LIMIT = 2000
MAX_LISTED = 10
HINTS = {
    "unauthorized": "The token is invalid, expired or revoked. Log in with a valid token: `mainstay login {url}`.",
    "active_job": "Follow it with `mainstay watch`, or cancel it with `mainstay jobs cancel`.",
    "bad_plan_digest": "--plan-digest takes the digest that the same command printed with --plan.",
    "forbidden": "`mainstay login` shows the account in use.",
    "read_only": "`mainstay login` shows the account in use.",
    "disabled": "An admin disabled this participant or agent.",
}

# Query parameters in server messages, and the options that set them.
OPTION_OF_QUERY = {"?dryRun=true": "--dry-run", "?force=true": "--force"}


def read_url(text: str) -> str:
    """Returns a full URL. Without a scheme the default is https, on loopback http."""
    if "://" not in text:
        text = f"http://{text}" if is_loopback(f"http://{text}") else f"https://{text}"
    parts = urlsplit(text)
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or parts.username is not None:
        raise CommandRefused(
            f"{printable(_without_credentials(text))!r} is not a server address, such as https://plane.example"
        )
    return text.rstrip("/").removesuffix("/api/v1")


def _without_credentials(text: str) -> str:
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _config_directory() -> Path:
    """The configuration directory of the user, also for root: a login is personal."""
    directory = os.environ.get("MAINSTAY_CONFIG_DIR")
    if directory:
        return Path(directory)
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "mainstay"


class Login(Struct):
    """The server of a command, the token, and how to connect to it. None: unknown."""

    url: str | None
    token: str | None
    ca_file: str | None
    insecure: bool

    def client(self) -> Client:
        if not self.url or not self.token:
            missing = "not logged in" if not self.url else f"no token for {self.url}"
            raise CommandRefused(
                f"{missing}: run `mainstay login {self.url or 'URL'}`, or set {URL_VARIABLE} and {TOKEN_VARIABLE}"
            )
        try:
            return Client(self.url, self.token, ca_file=checked_ca_file(self.ca_file), insecure=self.insecure)
        except PlainHttpRefused as refusal:
            raise CommandRefused(str(refusal)) from None


def read_login(arguments: argparse.Namespace | None = None) -> Login:
    """Precedence: options, environment, saved login. The saved token is never sent to another server."""
    url, token = os.environ.get(URL_VARIABLE), os.environ.get(TOKEN_VARIABLE)
    url = read_url(url) if url else None
    ca_file = getattr(arguments, "ca_file", None) or os.environ.get(CA_FILE_VARIABLE)
    insecure = getattr(arguments, "insecure", False)
    if url and token:
        return Login(url, token, ca_file, insecure=insecure)
    saved = _read_saved_login()
    if saved is None or (url and url != saved.url):
        return Login(url, token, ca_file, insecure=insecure)
    return Login(saved.url, token or saved.token, ca_file or saved.ca_file, insecure=insecure or saved.insecure)


def _read_saved_login() -> Login | None:
    path = _config_directory() / LOGIN_FILE
    try:
        saved = json.loads(path.read_text())
        return Login(
            str(saved["url"]), str(saved["token"]), saved.get("caFile"), insecure=saved.get("insecure") is True
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise CommandRefused(f"cannot read {path}; log in again: mainstay login URL") from None


def save_login(login: Login) -> Path:
    path = _config_directory() / LOGIN_FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    document: dict[str, object] = {"url": login.url, "token": login.token}
    if login.ca_file:
        document["caFile"] = checked_ca_file(login.ca_file)
    if login.insecure and is_unencrypted(str(login.url)):
        document["insecure"] = True
    write_private(path, json.dumps(document) + "\n")
    return path


def write_private(path: Path, text: str) -> None:
    """Writes atomically; only the owner can read the file."""
    try:
        write_private_file(path, text.encode())
    except OSError as error:
        raise CommandRefused(f"cannot write {path}: {error.strerror}", exit_code=EXIT_FAILED) from None


def forget_login() -> bool:
    try:
        (_config_directory() / LOGIN_FILE).unlink()
    except FileNotFoundError:
        return False
    return True


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Client]:
    """Yields a client. Errors are printed as text, or as a JSON document with --json."""
    as_json = getattr(arguments, "json", False)
    try:
        client = read_login(arguments).client()
        with translated_errors(client):
            yield client
    except CommandRefused as refusal:
        if not as_json:
            raise
        cause = refusal.__context__
        document = dict(cause.document) if isinstance(cause, ServerRefusal) else {}
        print_json({"error": str(refusal), **document})
        raise SystemExit(refusal.exit_code) from None


@contextmanager
def translated_errors(client: Client) -> Iterator[None]:
    """Turns exceptions of the client into CommandRefused."""
    try:
        yield
    except ServerRefusal as refusal:
        raise CommandRefused(error_text(refusal, client.url), exit_code=EXIT_REFUSED) from None
    except RateLimited as error:
        # The message of the server says when to try again.
        raise CommandRefused(str(error), exit_code=EXIT_FAILED) from None
    except Unreachable as error:
        raise CommandRefused(
            f"{error}\nCheck the address and the network, and that the server is running ({client.url}/healthz).",
            exit_code=EXIT_FAILED,
        ) from None
    except UnicodeEncodeError:
        # Not quoted: the value may be a secret.
        raise CommandRefused(f"{_undecodable_argument()} is not UTF-8 text") from None


def _undecodable_argument() -> str:
    """The option or name before `=` of the argument with undecodable bytes, which Python keeps as surrogates."""
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if any("\ud800" <= character <= "\udfff" for character in value):
            return f"the value of {name}"
    return "an argument"


def error_text(refusal: ServerRefusal, url: str, members: Members | None = None) -> str:
    """All faults with their paths, and hints. `members` are the known properties, for suggestions."""
    if refusal.faults:
        lines = [_faults_heading(refusal)]
        known = dict(walk_properties(members or {}))
        for path, message in refusal.faults:
            definition = known.get(path)
            # The path of an item is not in the definitions, and yet right.
            hint = did_you_mean(path, known) if definition is None and "[" not in path else ""
            if definition is not None and definition.get("type") != "boolean" and allowed_values(definition):
                hint = f": {allowed_text(definition)}"
            # Some server messages repeat the path.
            lines.append(f"  {path}: {message.removeprefix(f'{path}: ')}{hint}" if path else f"  {message}")
        return "\n".join(lines)
    text = str(refusal)
    for query, option in OPTION_OF_QUERY.items():
        text = text.replace(query, option)
    hint = HINTS.get(refusal.code, "").format(url=url)
    if refusal.code == "unauthorized" and os.environ.get(TOKEN_VARIABLE):
        hint += f"\n{TOKEN_VARIABLE} is set and takes precedence over the saved login."
    return f"{text}\n{hint}" if hint else text


def _faults_heading(refusal: ServerRefusal) -> str:
    if refusal.code != INVALID_PROPERTIES:
        return "the server rejected the request:"
    count = len(refusal.faults)
    return "1 property is invalid:" if count == 1 else f"{count} properties are invalid:"


def print_warning(text: str) -> None:
    print(f"mainstay: warning: {printable(text)}", file=sys.stderr)


def list_items(
    client: Client, path: str, query: Mapping[str, object] | None = None, limit: int = SEARCH_LIMIT
) -> list[Any]:
    """The items of a paged list, up to `limit`."""
    return list(islice(client.pages(path, query), limit))


def get_if_exists(client: Client, path: str) -> Any:
    """None if the server does not have it."""
    try:
        return client.get(path)
    except ServerRefusal as refusal:
        if refusal.status != 404:
            raise
        return None


def is_id(text: str) -> bool:
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and _is_hexadecimal("".join(parts))


def _is_hexadecimal(text: str) -> bool:
    return bool(text) and all(character in "0123456789abcdefABCDEF" for character in text)


def short_id(record_id: object) -> str:
    """The prefix of an id that lists show. Commands accept it instead of the id."""
    return str(record_id)[:SHORT_ID]


def word_of(path: str) -> str:
    """What messages call a record of the list: `/service-types` has service types."""
    return _WORDS.get(path) or path[1:].removesuffix("s").replace("-", " ")


def find_named(client: Client, path: str, name_or_id: str) -> Any:
    """The only item with this name, id or id prefix."""
    return _single(name_or_id, word_of(path), _matching(client, path, name_or_id), lambda: _names_of(client, path))


def find_participant_id(client: Client, name_or_id: str) -> str:
    return str(find_named(client, "/participants", name_or_id)["id"])


def _matching(client: Client, path: str, name_or_id: str) -> list[Any]:
    named = [each for each in list_items(client, path, {"name": name_or_id}) if each["name"] == name_or_id]
    if named:
        return named
    if is_id(name_or_id):
        return list_items(client, path, {"id": name_or_id.lower()})
    return _by_prefix(client, path, name_or_id)


def _by_prefix(client: Client, path: str, name_or_id: str) -> list[Any]:
    if len(name_or_id) < 4 or not _is_hexadecimal(name_or_id.replace("-", "")):
        return []
    return [
        each for each in list_items(client, path, {"sort": "-createdAt"}) if each["id"].startswith(name_or_id.lower())
    ]


def _names_of(client: Client, path: str, query: Mapping[str, object] | None = None) -> list[str]:
    return [str(each["name"]) for each in list_items(client, path, query, limit=500)]


def _single(name_or_id: str, noun: str, found: list[Any], known: Any) -> Any:
    if len(found) == 1:
        return found[0]
    if not found:
        names = known()
        available = f"; available: {', '.join(names[:MAX_LISTED])}" if names else "; there are none yet"
        raise CommandRefused(f"there is no {noun} {name_or_id!r}{did_you_mean(name_or_id, names) or available}")
    lines = [f"{len(found)} {noun}s are named {name_or_id!r}; use an id:"]
    lines += [f"  {_describe(each)}" for each in found[:MAX_LISTED]]
    raise CommandRefused("\n".join(lines))


def _describe(record: Mapping[str, Any]) -> str:
    kind = record.get("serviceType")
    words = [str(record["id"]), str(record.get("name", ""))]
    words += [str(kind["name"])] if isinstance(kind, dict) else []
    return "  ".join([*words, str(record.get("status", ""))])


def find_owner(client: Client, name_or_id: str | None, role: str, option: str) -> str:
    """The id of the participant that an option names, or of the caller. `role`: what the participant is here."""
    if name_or_id:
        return find_participant_id(client, name_or_id)
    own: str | None = client.get("/tokens/me").get("participantId")
    if own is None:
        raise CommandRefused(
            f"as an admin you must name the {role}: {option} PARTICIPANT; `mainstay participants` lists them"
        )
    return own


def name_of(record: Mapping[str, Any], member: str) -> str:
    """The name in an embedded `{id, name}`; empty if there is none."""
    found = record.get(member)
    return str(found["name"]) if isinstance(found, dict) else ""


def find_type(client: Client, name_or_id: str) -> Any:
    return find_named(client, "/service-types", name_or_id)


def find_service(client: Client, name_or_id: str) -> Any:
    """Finds a service by id or name. Of several with the name, prefers those not in a terminal state, then the newest."""
    found = _matching(client, "/services", name_or_id)
    if len(found) > 1:
        found = not_terminal(client, found) or [max(found, key=lambda each: str(each["createdAt"]))]
    # Ended services are no suggestions.
    return _single(name_or_id, "service", found, lambda: _names_of(client, "/services", {"living": "true"}))


def not_terminal(client: Client, services: Iterable[Any]) -> list[Any]:
    terminal: dict[str, frozenset[str]] = {}
    found = []
    for service in services:
        type_id = service["serviceTypeId"]
        if type_id not in terminal:
            terminal[type_id] = terminal_states(client.get(f"/service-types/{type_id}"))
        if service["status"] not in terminal[type_id]:
            found.append(service)
    return found


def find_agent(client: Client, name_or_id: str) -> Any:
    """Finds an agent by name or id, including agents of other providers in the catalogue."""
    own = _matching(client, "/agents", name_or_id)
    if own:
        return _single(name_or_id, "agent", own, list)
    offered = _offered_agents(client.get("/catalogue"))
    found = [each for each in offered.values() if name_or_id in (each["name"], each["id"])]
    return _single(name_or_id, "agent", found, lambda: sorted({each["name"] for each in offered.values()}))


def find_offering_provider(
    client: Client, name_or_id: str, service_type: Mapping[str, Any], consumer_id: str | None
) -> str:
    """The id of a provider that offers the type to the customer. Names are not unique: participants name themselves."""
    catalogue = client.get("/catalogue", query={"consumerId": consumer_id} if consumer_id else {})
    providers = [
        offer["provider"]
        for item in catalogue["items"]
        if item["serviceType"]["id"] == service_type["id"]
        for offer in item["offers"]
    ]
    found = [each for each in providers if name_or_id in (each["name"], each["id"])]
    noun = f"provider of {service_type['name']}"
    return str(_single(name_or_id, noun, found, lambda: sorted({each["name"] for each in providers}))["id"])


def _offered_agents(catalogue: Mapping[str, Any]) -> dict[str, Any]:
    return {
        agent["id"]: agent for item in catalogue["items"] for offer in item["offers"] for agent in offer["agents"]
    }


def find_orphan(client: Client, name_or_id: str) -> Any:
    """Finds an orphan by id, id prefix or the name of its service."""
    found = list_items(client, "/orphans")
    named = [each for each in found if name_or_id in (each["id"], each["serviceName"])]
    if not named and len(name_or_id) >= 4:
        named = [each for each in found if each["id"].startswith(name_or_id.lower())]
    if not named:
        raise CommandRefused(f"there is no clean-up {name_or_id!r}; `mainstay clean-ups` lists them")
    return _single(name_or_id, "clean-up", named, list)


def find_by_id(client: Client, path: str, id_or_prefix: str) -> Any:
    """A record without a name."""
    if is_id(id_or_prefix):
        return client.get(f"{path}/{id_or_prefix}")
    found = _by_prefix(client, path, id_or_prefix)
    noun, lister = RECORDS_WITHOUT_NAMES[path]
    if not found:
        raise CommandRefused(f"there is no {noun} {id_or_prefix!r}; `{lister}` lists them")
    return _single(id_or_prefix, noun.removesuffix(" with id"), found, list)
