"""Creates, checks, tests, signs, pushes, lists and removes blueprints. A blueprint defines what a service type means on a
host.

`new NAME` creates a working example; `check DIR…` reports every fault with its line; `test DIR` starts a server and an
agent, orders the examples and runs every action; `keygen FILE` creates a key and `sign DIR` signs the blueprint with it,
for agents that run only signed blueprints; `push DIR` checks the blueprint and uploads it to a control plane, and `pull`
downloads one by digest or NAME@VERSION, with the saved login or --server and --token-file. `list` lists the blueprints of
the control plane, `versions NAME` the versions of one, `remove` removes a version that nothing uses.
Exit code: 0 success, 1 faults were found or the server is unreachable, 2 the request was refused."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack, contextmanager

from mainstay.cli.documents import read_text
from mainstay.cli.main import CommandRefused, add_argument, add_list_option, add_switch, print_error, print_json
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.views.run_display import counted, printable
from mainstay.cli.views.tables import GOOD, age, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from mainstay.agent.blueprint import Blueprint
    from mainstay.agent.client import Client

SUMMARY = "create, check, test, sign, push, list and remove blueprints"
GROUP = "write blueprints"
EXIT_FAULTS, EXIT_UNREACHABLE = 1, 1


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="new|check|test|keygen|sign|push|pull|list|versions|remove"
    )

    def add(name: str, act: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=summary, allow_abbrev=False)
        verb.set_defaults(act=act)
        return verb

    new = add("new", _new, "create a working example")
    new.add_argument("name", metavar="NAME")
    add_argument(new, "--dir", "DIR", "directory to create (default ./NAME)")
    check = add("check", _check, "report every fault with its line; change nothing")
    add_argument(check, "directories", "DIR", "one or more blueprints", nargs="+")
    add_switch(check, "--json", "print one JSON document; a list for several directories")
    test = add("test", _test, "order the examples and run every action")
    test.add_argument("directory", metavar="DIR")
    add_list_option(test, "--order", "NAME", "only this example; repeatable")
    test.add_argument(
        "--on",
        choices=("auto", "throw-away", "scratch", "here"),
        default="auto",
        help="throw-away host with systemd (needs root), scratch directory, or this host; auto (default) uses the first available",
    )
    test.add_argument("--shown-as", default="this host", help=argparse.SUPPRESS)
    add_switch(test, "--json", "print one JSON document")
    keygen = add("keygen", _create_key, "create a key that signs blueprints")
    add_argument(keygen, "file", "FILE", "new file for the private key; FILE.pub gets the public key")
    sign = add("sign", _sign, "sign a blueprint for agents with --trust")
    sign.add_argument("directory", metavar="DIR")
    add_argument(sign, "--key", "FILE", "private key of `blueprint keygen`", required=True)
    push = add("push", _push, "check, and upload to a control plane")
    push.add_argument("directory", metavar="DIR")
    add_switch(push, "--force", "replace the same version; change the type even if services do not fit")
    add_switch(push, "--dry-run", "only show what would happen")
    pull = add("pull", _pull, "download into a directory")
    add_argument(pull, "what", "DIGEST|NAME[@VERSION]", "without a version, the current version")
    add_argument(pull, "directory", "DIR", "new or empty directory")
    listed = add("list", _list, "list the blueprints of the control plane")
    versions = add("versions", _versions, "list the versions of a blueprint")
    add_argument(versions, "name", "BLUEPRINT", "name of the blueprint")
    remove = add("remove", _remove, "remove a version that nothing uses")
    remove.add_argument("what", metavar="DIGEST|NAME@VERSION")
    add_switch(remove, "--yes", "do not ask for a confirmation")
    for verb in (push, pull, listed, versions, remove):
        add_argument(verb, "--server", "URL", "address of the control plane (default: the saved login)")
        add_argument(verb, "--token-file", "FILE", "file with an admin token")
        add_remote_options(verb)


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.act(arguments)
    return code


def _new(arguments: argparse.Namespace) -> int:
    from mainstay.agent.blueprint import NAME
    from mainstay.blueprints.scaffold import files_of

    name, directory = arguments.name, arguments.dir or arguments.name
    if not NAME.fullmatch(name):
        raise CommandRefused(
            f"{name!r} is not a valid blueprint name: use letters, digits, dots, dashes and underscores"
        )
    _require_empty(directory)
    for path, content in files_of(name).items():
        place = os.path.join(directory, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "x", encoding="utf-8") as file:
            file.write(content)
    print(f"Created {directory}. Test it with `mainstay blueprint test {directory}`.")
    return 0


def _require_empty(directory: str) -> None:
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        raise CommandRefused(f"{directory} already exists; use a new or empty directory")


def _check(arguments: argparse.Namespace) -> int:
    documents: list[dict[str, Any]] = []
    codes: list[int] = []
    for directory in arguments.directories:
        try:
            code, document = _check_one(_require_directory(directory), quiet=arguments.json)
        except CommandRefused as refusal:
            if len(arguments.directories) == 1:
                raise
            code, document = refusal.exit_code, {"directory": directory, "error": str(refusal)}
            if not arguments.json:
                print_error(str(refusal))
        codes.append(code)
        documents.append(document)
    if arguments.json:
        print_json(documents if len(documents) > 1 else documents[0])
    return max(codes)


def _check_one(directory: str, *, quiet: bool) -> tuple[int, dict[str, Any]]:
    """Returns exit code and JSON document; prints the findings unless quiet."""
    from mainstay.blueprints.check import check_blueprint

    blueprint, found = check_blueprint(directory)
    document = {
        "name": None if blueprint is None else blueprint.name,
        "version": None if blueprint is None else blueprint.version,
        "faults": [fault.as_json() for fault in found.faults],
        "warnings": [warning.as_json() for warning in found.warnings],
    }
    lines = list(found.lines())
    if blueprint is None or found.faults:
        summary = counted(len(found.faults), "fault")
    else:
        warnings = f", {counted(len(found.warnings), 'warning')}" if found.warnings else ""
        summary = f"{blueprint.name} {blueprint.version} is valid{warnings}"
    for line in () if quiet else (*lines, f"{directory}: {summary}"):
        print(printable(line))
    return EXIT_FAULTS if blueprint is None or found.faults else 0, document


def _test(arguments: argparse.Namespace) -> int:
    from mainstay.converge.host.throw_away_host import why_unavailable

    directory = _require_directory(arguments.directory)
    place = arguments.on
    if place in ("auto", "throw-away"):
        problem = why_unavailable()
        if problem is None:
            return _test_in_throw_away_host(arguments, directory)
        if place == "throw-away":
            raise CommandRefused(f"a throw-away host cannot run here: {problem}; use --on scratch")
        place = "scratch"
    return _test_here(arguments, directory, place)


def _test_in_throw_away_host(arguments: argparse.Namespace, directory: str) -> int:
    """Runs the same command in a throw-away host."""
    import subprocess
    import sys
    from pathlib import Path

    import mainstay
    from mainstay.converge.host.throw_away_host import HostError, SystemdHost, is_visible_in_host

    blueprint = Path(directory).resolve()
    needed = {blueprint, Path(mainstay.__file__).parents[1].resolve(), Path(sys.prefix), Path(sys.base_prefix)}
    binds = [path for path in sorted(needed) if not is_visible_in_host(path)]
    program = "from mainstay.cli.main import program; program()"
    words = [sys.executable, "-c", program, "blueprint", "test", str(blueprint), "--on", "here"]
    words += ["--shown-as", "a throw-away host"]
    words += [word for name in arguments.order for word in ("--order", name)]
    words += ["--json"] if arguments.json else []
    try:
        with SystemdHost("blueprint", read_only_binds=binds) as host:
            return subprocess.run(host.command(words), stdin=subprocess.DEVNULL, check=False).returncode
    except HostError as error:
        raise CommandRefused(f"the throw-away host does not start: {error}; use --on scratch") from None


def _test_here(arguments: argparse.Namespace, directory: str, place: str) -> int:
    from tempfile import TemporaryDirectory

    from mainstay.agent.client import Unreachable
    from mainstay.blueprints.example_orders import read_orders
    from mainstay.blueprints.test_runner import CannotTest, run_blueprint_test
    from mainstay.cli.local_run import exit_on_faults
    from mainstay.cli.views.blueprint_tests import BlueprintTestDisplay

    blueprint = _checked(directory, as_json=arguments.json)
    with exit_on_faults(as_json=arguments.json):
        orders = read_orders(directory)
    unknown = sorted(set(arguments.order) - {order.name for order in orders})
    if unknown or not orders:
        available = ", ".join(order.name for order in orders) or "none"
        raise CommandRefused(f"there is no example order {', '.join(unknown)}; orders/ contains: {available}")
    chosen = [order for order in orders if not arguments.order or order.name in arguments.order]
    display = BlueprintTestDisplay(blueprint, chosen, quiet=arguments.json)
    with ExitStack() as stack:
        root = None if place == "here" else stack.enter_context(TemporaryDirectory(prefix="mainstay-root-"))
        display.start(arguments.shown_as if root is None else "a scratch directory")
        try:
            steps = run_blueprint_test(blueprint, chosen, root, display.show_step)
        except (CannotTest, Unreachable) as problem:
            raise CommandRefused(str(problem), exit_code=EXIT_FAULTS) from None
    if arguments.json:
        print_json(display.as_json(steps))
    else:
        display.finish(steps)
    return EXIT_FAULTS if any(step.failed for step in steps) else 0


def _require_directory(directory: str) -> str:
    if not os.path.isdir(directory):
        raise CommandRefused(f"{directory} is not a directory; a blueprint is a directory")
    return directory.rstrip("/") or "/"


def _checked(directory: str, *, as_json: bool) -> Blueprint:
    """Prints the faults and exits if there are any."""
    from mainstay.blueprints.check import check_blueprint
    from mainstay.cli.local_run import show_faults
    from mainstay.foundation.faults import DoesNotLoad

    blueprint, found = check_blueprint(directory)
    if blueprint is None or found.faults:
        show_faults(DoesNotLoad(found.faults), as_json=as_json)
        raise SystemExit(EXIT_FAULTS)
    return blueprint


@contextmanager
def _signing() -> Iterator[None]:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise CommandRefused("signatures need the package `cryptography`: install Mainstay with its extra `trust`")
    from mainstay.blueprints.signing import SigningRefused

    try:
        yield
    except SigningRefused as problem:
        raise CommandRefused(str(problem)) from None


def _create_key(arguments: argparse.Namespace) -> int:
    with _signing():
        from mainstay.blueprints.signing import create_key

        public = create_key(arguments.file)
    print(f"Created {arguments.file}, which must stay private, and {arguments.file}.pub.")
    print("Agents with `--trust KEYS` run what it signs once the file KEYS contains this line:")
    print(public)
    return 0


def _sign(arguments: argparse.Namespace) -> int:
    from mainstay.cli.local_run import exit_on_faults

    with _signing(), exit_on_faults(as_json=False):
        from mainstay.blueprints.signing import sign

        directory = _require_directory(arguments.directory)
        blueprint, count = sign(directory, arguments.key)
    print(f"Signed {blueprint.name} {blueprint.version}, {counted(count, 'file')}: {directory}/blueprint.sig")
    return 0


def _refuse_outdated_signature(directory: str, blueprint: Blueprint) -> None:
    from mainstay.agent.signatures import SIGNATURE

    if not os.path.lexists(os.path.join(directory, SIGNATURE)):
        return
    with _signing():
        from mainstay.blueprints.signing import is_outdated

        if is_outdated(directory, blueprint):
            raise CommandRefused(
                f"{directory}/{SIGNATURE} does not sign these files: run `mainstay blueprint sign` again, or remove it"
            )


def _push(arguments: argparse.Namespace) -> int:
    from mainstay.blueprints.bundle import pack
    from mainstay.cli.local_run import exit_on_faults

    directory = _require_directory(arguments.directory)
    blueprint = _checked(directory, as_json=arguments.json)
    with exit_on_faults(as_json=arguments.json):
        bundle = pack(directory)
    _refuse_outdated_signature(directory, blueprint)
    query = {"force": str(arguments.force).lower(), "dryRun": str(arguments.dry_run).lower()}
    with _connected(arguments) as client:
        pushed = client.call("POST", "/blueprints", bundle, query=query, headers={"Content-Type": "application/gzip"})
    if arguments.json:
        print_json(pushed)
        return 0
    version = f"{pushed['name']} {pushed['version']}"
    if pushed["created"]:
        print(f"{'Would push' if arguments.dry_run else 'Pushed'} {version}: {pushed['digest']}")
    else:
        print(f"{version} already exists and is the current version: {pushed['digest']}")
    print(
        f"New services of type {pushed['serviceType']['name']} use it; "
        "existing services get it with an action that has `upgrades: true`."
    )
    for count, verbs, noun in (
        (pushed["sealedSecrets"], ("Sealed", "Would seal"), "plain value"),
        (pushed["deletedSecrets"], ("Deleted", "Would delete"), "secret"),
    ):
        if count:
            print(f"{verbs[arguments.dry_run]} {counted(count, noun)} of living services.")
    for misfit in pushed["misfits"]:
        print(f"warning: service {misfit['serviceId']} does not fit: {misfit['message']}")
    if pushed["misfits"] and not arguments.force:
        print("Without --force the server refuses this push.")
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    from mainstay.agent.blueprint import digest_of, unpack
    from mainstay.cli.local_run import exit_on_faults

    _require_empty(arguments.directory)
    with _connected(arguments) as client:
        digest = _find_digest(client, arguments.what)
        bundle = client.get(f"/blueprints/{digest}", headers={"Accept": "*/*"})
    if not isinstance(bundle, bytes) or digest_of(bundle) != digest:
        raise CommandRefused(
            f"the server sent a bundle with another digest than {digest}; nothing was saved",
            exit_code=EXIT_UNREACHABLE,
        )
    with exit_on_faults(as_json=arguments.json):
        unpack(bundle, arguments.directory)
    if arguments.json:
        print_json({"digest": digest, "directory": arguments.directory})
    else:
        print(f"{arguments.directory}: {digest}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    with _connected(arguments) as client:
        found = list(client.pages("/blueprints", {"sort": "-createdAt"}))
        types = {each["id"]: each["name"] for each in client.pages("/service-types")}
    by_name: dict[str, list[Any]] = {}
    for each in found:
        by_name.setdefault(each["name"], []).append(each)
    current = {name: next((each for each in group if each["isCurrent"]), group[0]) for name, group in by_name.items()}
    if arguments.json:
        print_json([{**current[name], "versions": len(group)} for name, group in sorted(by_name.items())])
    elif found:
        rows = [
            [
                name,
                each["version"] if each["isCurrent"] else "",
                types.get(each["serviceTypeId"], ""),
                str(len(by_name[name])),
                age(each["createdAt"]),
            ]
            for name, each in sorted(current.items())
        ]
        print_table(("BLUEPRINT", "CURRENT", "SERVICE TYPE", "VERSIONS", "AGE"), rows)
    else:
        print("There is no blueprint yet; `mainstay blueprint push DIR` uploads one.")
    return 0


def _versions(arguments: argparse.Namespace) -> int:
    with _connected(arguments) as client:
        named = client.pages("/blueprints", {"name": arguments.name, "sort": "-createdAt"})
        found = [each for each in named if each["name"] == arguments.name]
    if not found:
        raise CommandRefused(f"there is no blueprint {arguments.name}; `mainstay blueprint list` lists them")
    if arguments.json:
        print_json(found)
        return 0
    print_table(
        ("VERSION", "NEW SERVICES", "AGE", "DIGEST"),
        [
            [each["version"], ("get it", GOOD) if each["isCurrent"] else "", age(each["createdAt"]), each["digest"]]
            for each in found
        ],
    )
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    from mainstay.cli.remote.removal import confirm, print_outcome

    if not arguments.what.startswith("sha256:") and "@" not in arguments.what:
        raise CommandRefused(f"name the version to remove: {arguments.what}@VERSION, or its digest")
    with _connected(arguments) as client:
        digest = _find_digest(client, arguments.what)
        confirm(arguments, f"Remove blueprint {arguments.what} ({digest})?")
        client.call("DELETE", f"/blueprints/{digest}")
    return print_outcome(arguments, {"digest": digest}, f"Removed {arguments.what}.")


def _find_digest(client: Client, what: str) -> str:
    if what.startswith("sha256:"):
        return what
    name, _, version = what.partition("@")
    found = [each for each in client.pages("/blueprints", {"name": name}) if each["name"] == name]
    if version:
        found = [each for each in found if each["version"] == version]
    elif len(found) > 1:
        found = [each for each in found if each["isCurrent"]]
    if len(found) == 1:
        return str(found[0]["digest"])
    raise CommandRefused(
        f"there is no blueprint {what}" if not found else f"{name} has several current versions; use NAME@VERSION"
    )


@contextmanager
def _connected(arguments: argparse.Namespace) -> Iterator[Client]:
    """Yields a client for --server and --token-file, or for the saved login."""
    from mainstay.cli.remote.connection import TOKEN_VARIABLE, Login, read_login, read_url, translated_errors

    login = read_login(arguments)
    if arguments.server and (url := read_url(arguments.server)) != login.url:
        # The saved token is never sent to another server.
        login = Login(url, os.environ.get(TOKEN_VARIABLE), arguments.ca_file, insecure=arguments.insecure)
    if arguments.token_file:
        login.token = read_text(arguments.token_file).strip()
    if not login.url or not login.token:
        raise CommandRefused(
            f"{f'no token for {login.url}' if login.url else 'not logged in'}:"
            " run `mainstay login URL`, or use --server and --token-file"
        )
    client = login.client()
    with translated_errors(client):
        yield client
