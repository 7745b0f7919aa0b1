"""Shows the actual state of resources on this host.

mainstay status file /etc/hosts
mainstay status service nginx redis
mainstay status user app --yaml >> manifest.yaml

Exit code: 0 success, 1 at least one state could not be read; the others are shown."""

from __future__ import annotations

import argparse

from mainstay.cli.local_run import EXIT_FAILED
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_error, print_json
from mainstay.cli.views.run_display import printable
from mainstay.converge.actual_state import as_text, read_entry, read_state
from mainstay.converge.failures import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Result = TypeVar("Result")

SUMMARY = "show the actual state of resources"
GROUP = "this host"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "type", "RESOURCE_TYPE", "file, service, user, …")
    add_argument(parser, "names", "NAME", "one or more names", nargs="+")
    add_argument(parser, "--provider", "PROVIDER", "use this provider")
    form = parser.add_mutually_exclusive_group()
    add_switch(form, "--json", "print one JSON document; a list for several names")
    add_switch(form, "--yaml", "print entries of a manifest that keep this state; secrets are left out")


def run(arguments: argparse.Namespace) -> int:
    if arguments.yaml:
        return _print_entries(arguments)
    states: list[dict[str, Any]] = []
    for name in arguments.names:
        try:
            states.append(_attempt(read_state, arguments.type, name, arguments.provider))
        except CommandRefused as refusal:
            if len(arguments.names) == 1:
                raise
            states.append({"resource": f"{arguments.type}#{name}", "error": str(refusal)})
    if arguments.json:
        print_json(states if len(states) > 1 else states[0])
    else:
        for index, state in enumerate(states):
            _show(state, after_another=any("error" not in each for each in states[:index]))
    return EXIT_FAILED if any("error" in state for state in states) else 0


def _print_entries(arguments: argparse.Namespace) -> int:
    from mainstay.cli.views.yaml_output import to_yaml

    entries: list[dict[str, Any]] = []
    remarks: list[str] = []
    failed = False
    for name in arguments.names:
        try:
            properties, left_out = _attempt(read_entry, arguments.type, name, arguments.provider)
        except CommandRefused as refusal:
            if len(arguments.names) == 1:
                raise
            print_error(f"{arguments.type}#{name}: {refusal}")
            failed = True
            continue
        if arguments.provider is not None:
            properties["provider"] = arguments.provider
        entries.append({as_text(name): properties})
        remarks += [f"# {arguments.type}#{name}: {remark}" for remark in left_out]
    for remark in remarks:
        print(printable(remark))
    if entries:
        print(to_yaml([{arguments.type: entries}]), end="")
    return EXIT_FAILED if failed else 0


def _attempt(read: Callable[..., Result], type_name: str, name: str, provider: str | None) -> Result:
    try:
        return read(type_name, name, provider)
    except Failure as failure:
        raise CommandRefused(str(failure), exit_code=EXIT_FAILED) from None
    except OSError as error:
        raise CommandRefused(f"{error.strerror}: {name}", exit_code=EXIT_FAILED) from None


def _show(state: dict[str, Any], *, after_another: bool) -> None:
    if "error" in state:
        print_error(f"{state['resource']}: {state['error'].removeprefix(state['resource'] + ': ')}")
        return
    if after_another:
        print()
    width = max(len(key) for key in state)
    is_command = state["resource"].startswith("exec#")
    for key, value in state.items():
        # A command is neither present nor absent.
        if value is not None and not (is_command and key == "ensure"):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            print(f"{key:<{width}}  {printable(text)}")
