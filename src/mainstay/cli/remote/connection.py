"""What the commands that speak to a control plane share: the login, the client, finding things by name, refusals."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from mainstay.agent.client import Client, ServerRefusal, Unreachable
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.addresses import read_url
from mainstay.cli.remote.service_types import allowed, terminal_states, walk
from mainstay.cli.views.run_display import printable
from mainstay.foundation.private_files import write_private_file
from mainstay.foundation.suggestions import did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from mainstay.cli.remote.service_types import Members

EXIT_FAILED, EXIT_REFUSED = 1, 2
LOGIN_FILE = "login.json"
URL_VARIABLE, TOKEN_VARIABLE = "MAINSTAY_URL", "MAINSTAY_TOKEN"
SHORT_ID = 8
# How many are looked through for a name or the beginning of an id.
LOOKED_THROUGH = 2000
NAMED_IN_A_MESSAGE = 10
WAYS_OUT = {
    "unauthorized": "The token was mistyped, has ended or was withdrawn; get another one and `mainstay login {url}`.",
    "active_job": "`mainstay watch` follows it; `mainstay jobs cancel` ends it.",
    "bad_plan_digest": "--plan-digest takes what the same command with --plan printed.",
    "forbidden": "`mainstay login` tells who you are logged in as.",
    "disabled": "An admin has disabled this participant or agent.",
}

# What the server calls it, and what the commands do.
OPTIONS = {"?dryRun=true": "--dry-run", "?force=true": "--force"}


def _config_directory() -> Path:
    """A person's own, also root's: a login belongs to who typed it."""
    given = os.environ.get("MAINSTAY_CONFIG_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "mainstay"


def read_login() -> tuple[str | None, str | None]:
    """Address and token. A token that was kept for one server is never sent to another."""
    url, token = os.environ.get(URL_VARIABLE), os.environ.get(TOKEN_VARIABLE)
    url = read_url(url) if url else None
    if url and token:
        return url, token
    path = _config_directory() / LOGIN_FILE
    try:
        kept = json.loads(path.read_text())
        kept_url, kept_token = str(kept["url"]), str(kept["token"])
    except FileNotFoundError:
        return url, token
    except (OSError, ValueError, LookupError, TypeError):
        raise CommandRefused(f"{path} cannot be read; log in again: mainstay login URL") from None
    if url and url != kept_url:
        return url, token
    return kept_url, token or kept_token


def save_login(url: str, token: str) -> Path:
    path = _config_directory() / LOGIN_FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, json.dumps({"url": url, "token": token}) + "\n")
    return path


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and from the start readable by its owner only."""
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


def open_client() -> Client:
    url, token = read_login()
    if not url or not token:
        missing = "no login" if not url else f"no token for {url}"
        raise CommandRefused(
            f"{missing}: `mainstay login URL` asks for a token and keeps it, "
            f"or set {URL_VARIABLE} and {TOKEN_VARIABLE}"
        )
    return Client(url, token)


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Client]:
    """A client for the command; whatever the server refuses is said in words, or as a document with --json."""
    as_json = getattr(arguments, "json", False)
    try:
        client = open_client()
        with speaking(client):
            yield client
    except CommandRefused as refusal:
        if not as_json:
            raise
        from mainstay.cli.local_run import print_json

        cause = refusal.__context__
        document = dict(cause.document) if isinstance(cause, ServerRefusal) else {}
        print_json({"error": str(refusal), **document})
        raise SystemExit(refusal.exit_code) from None


@contextmanager
def speaking(client: Client) -> Iterator[None]:
    """Turns what the client says into what the program says."""
    try:
        yield
    except ServerRefusal as refusal:
        raise CommandRefused(explain(refusal, client.url), exit_code=EXIT_REFUSED) from None
    except Unreachable as error:
        raise CommandRefused(
            f"{error}\nCheck the address, that the server runs ({client.url}/healthz answers), and the network.",
            exit_code=EXIT_FAILED,
        ) from None


def explain(refusal: ServerRefusal, url: str, members: Members | None = None) -> str:
    """All that is wrong, each with its place, and the way out; `members` are the properties that could be meant."""
    if refusal.faults:
        lines = [f"the server refuses {len(refusal.faults)} thing{'' if len(refusal.faults) == 1 else 's'}:"]
        known = dict(walk(members or {}))
        for path, message in refusal.faults:
            hint = did_you_mean(path, known) if message.startswith("unknown") else ""
            if "enum" in message and path in known:
                hint = f": {allowed(known[path])}"
            # Some messages of the server name the property themselves.
            lines.append(f"  {path}: {message.removeprefix(f'{path}: ')}{hint}" if path else f"  {message}")
        return "\n".join(lines)
    text = str(refusal)
    for query, option in OPTIONS.items():
        text = text.replace(query, option)
    way_out = WAYS_OUT.get(refusal.code, "").format(url=url)
    if refusal.code == "unauthorized" and os.environ.get(TOKEN_VARIABLE):
        way_out += f"\n{TOKEN_VARIABLE} is set, and wins over what `mainstay login` keeps."
    return f"{text}\n{way_out}" if way_out else text


def print_warning(text: str) -> None:
    print(f"mainstay: warning: {printable(text)}", file=sys.stderr)


def some(
    client: Client, path: str, query: Mapping[str, object] | None = None, limit: int = LOOKED_THROUGH
) -> list[Any]:
    """The items of a list, up to a bound."""
    return list(islice(client.pages(path, query), limit))


def is_id(word: str) -> bool:
    parts = word.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and _is_hexadecimal("".join(parts))


def _is_hexadecimal(word: str) -> bool:
    return bool(word) and all(character in "0123456789abcdefABCDEF" for character in word)


def short(record_id: object) -> str:
    """The beginning of an id: enough to tell it from others, and taken wherever an id is."""
    return str(record_id)[:SHORT_ID]


def find_named(client: Client, path: str, noun: str, word: str) -> Any:
    """The one item with this name, id or beginning of an id."""
    return _one_of(word, noun, _matching(client, path, word), lambda: _names_of(client, path))


def _matching(client: Client, path: str, word: str) -> list[Any]:
    named = [each for each in some(client, path, {"name": word}) if each["name"] == word]
    if named:
        return named
    if is_id(word):
        return some(client, path, {"id": word.lower()})
    return _by_prefix(client, path, word)


def _by_prefix(client: Client, path: str, word: str) -> list[Any]:
    if len(word) < 4 or not _is_hexadecimal(word.replace("-", "")):
        return []
    return [each for each in some(client, path, {"sort": "-createdAt"}) if each["id"].startswith(word.lower())]


def _names_of(client: Client, path: str) -> list[str]:
    return [str(each["name"]) for each in some(client, path, limit=500)]


def _one_of(word: str, noun: str, found: list[Any], known: Any) -> Any:
    if len(found) == 1:
        return found[0]
    if not found:
        names = known()
        there = f"; there is: {', '.join(names[:NAMED_IN_A_MESSAGE])}" if names else f"; there is no {noun} yet"
        near = did_you_mean(word, names)
        raise CommandRefused(f"there is no {noun} {word!r}{near or there}")
    lines = [f"{len(found)} {noun}s are called {word!r}; give the id of one:"]
    lines += [f"  {_describe(each)}" for each in found[:NAMED_IN_A_MESSAGE]]
    raise CommandRefused("\n".join(lines))


def _describe(record: Mapping[str, Any]) -> str:
    kind = record.get("serviceType")
    words = [str(record["id"]), str(record.get("name", ""))]
    words += [str(kind["name"])] if isinstance(kind, dict) else []
    return "  ".join([*words, str(record.get("status", ""))])


def find_type(client: Client, word: str) -> Any:
    return find_named(client, "/service-types", "service type", word)


def find_service(client: Client, word: str) -> Any:
    """A living service by its name; a service that has ended, if no living one has the name; or any by its id."""
    found = _matching(client, "/services", word)
    if len(found) > 1:
        alive = living(client, found)
        found = alive or [max(found, key=lambda each: str(each["createdAt"]))]
    return _one_of(word, "service", found, lambda: _names_of(client, "/services"))


def living(client: Client, services: Iterable[Any]) -> list[Any]:
    terminal: dict[str, frozenset[str]] = {}
    kept = []
    for service in services:
        type_id = service["serviceTypeId"]
        if type_id not in terminal:
            terminal[type_id] = terminal_states(client.get(f"/service-types/{type_id}"))
        if service["status"] not in terminal[type_id]:
            kept.append(service)
    return kept


def find_agent(client: Client, word: str) -> Any:
    """An agent by name or id, also one of another provider that can be ordered from."""
    own = _matching(client, "/agents", word)
    if own:
        return _one_of(word, "agent", own, list)
    offered = _offered_agents(client.get("/catalogue"))
    found = [each for each in offered.values() if word in (each["name"], each["id"])]
    return _one_of(word, "agent", found, lambda: sorted({each["name"] for each in offered.values()}))


def _offered_agents(catalogue: Mapping[str, Any]) -> dict[str, Any]:
    return {
        agent["id"]: agent for item in catalogue["items"] for offer in item["offers"] for agent in offer["agents"]
    }


def find_job(client: Client, word: str) -> Any:
    if is_id(word):
        return client.get(f"/jobs/{word}")
    found = _by_prefix(client, "/jobs", word)
    if not found:
        raise CommandRefused(f"there is no job {word!r}; `mainstay jobs` lists them")
    return _one_of(word, "job", found, list)
