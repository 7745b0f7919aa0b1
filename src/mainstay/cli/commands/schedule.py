"""Applies a manifest at regular times, as root, by a systemd timer. Without arguments, lists the schedules.

mainstay schedule site.yaml --every 30m --splay 5m --data /etc/mainstay/site.data.yaml
mainstay schedule --remove site

Times are those of the clock: every 30m means at :00 and :30, plus a delay of at most --splay that each host keeps. A
time missed while the host was off is made up for after the boot. The same name again replaces the schedule. Refused if
a user other than root can change the manifest, a manifest that it applies, their directories, files of --data, --values
or --facts, or the program. Values are given by files only, because every user can read a unit.
`journalctl -u mainstay-apply-NAME` and `mainstay history` show the runs."""

from __future__ import annotations

import argparse
import os
from argparse import SUPPRESS

from mainstay.cli.local_run import EXIT_FAILED, exit_on_faults, value_layers
from mainstay.cli.main import CommandRefused, add_argument, add_list_option, add_switch, parse_seconds, print_json
from mainstay.cli.schedule_units import (
    PREFIX,
    Schedule,
    calendar_times,
    name_problem,
    nearest_intervals,
    read_timer,
    service_text,
    timer_text,
)
from mainstay.cli.systemd_units import (
    UNIT_DIRECTORY,
    install_units,
    program_words,
    refuse_hidden_program,
    remove_units,
    unit_path,
    warn_of_temporary_program,
)
from mainstay.cli.views.tables import print_table
from mainstay.converge.apply import Options
from mainstay.converge.host.sources import is_url
from mainstay.converge.host.systemctl import RUNTIME_DIRECTORY
from mainstay.converge.host.write_access import why_program_untrusted, why_untrusted
from mainstay.converge.run import RunRequest, load, refuse_unknown_tags
from mainstay.foundation import Any
from mainstay.foundation.suggestions import did_you_mean

SUMMARY = "apply a manifest at regular times"
GROUP = "this host"
STAMP_DIRECTORY = "/var/lib/systemd/timers"
SERVICE_PROPERTIES = "ActiveState,Result,ExecMainStatus,ExecMainExitTimestamp"
TIMER_PROPERTIES = "ActiveState,NextElapseUSecRealtime,LastTriggerUSec"
QUERY_SECONDS = 60
LARGEST_TIMER_BYTES = 64 * 1024
LOCKED_STATUS = "3"
VALUE_FILES = ("data", "values", "facts")
IN_A_FILE = "write it into a file that only root can read, such as /etc/mainstay/NAME.yaml, and give that with"
# Options of `mainstay apply` that a schedule does not take, each with the reason and the way out. No value is shown.
NOT_SCHEDULED = {
    "set": f"every user can read the value in the unit; {IN_A_FILE} --data",
    "fact": f"every user can read the value in the unit; {IN_A_FILE} --facts",
    "diff": "diffs would stay in the journal, which users other than root may read; run `mainstay apply --diff` by hand",
    "report": "all runs would write the same file; `mainstay history` keeps the report of every run",
    "detailed_exitcodes": "systemd would take a run that changed something for a failure; `mainstay history` shows changes",
    "sha256": "it belongs to a URL, which cannot be scheduled; download the bundle to a file of root and schedule that",
    "ca_file": "it belongs to a URL, which cannot be scheduled; download the bundle to a file of root and schedule that",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "manifest", "MANIFEST", "a YAML file or a bundle", nargs="?")
    add_argument(parser, "--every", "DURATION", "interval that fills a day evenly, such as 10m, 1h or 1d; or 7d")
    add_argument(parser, "--splay", "DURATION", "longest delay of a run; each host has its own (default none)")
    add_argument(parser, "--name", "NAME", "name of the schedule (default: name of the file without its ending)")
    add_argument(parser, "--remove", "NAME", "remove a schedule; a run in progress goes on to its end")
    add_switch(parser, "--noop", "show what would change, change nothing")
    add_switch(parser, "--json", "print the list as one JSON document")
    _add_run_options(parser)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `mainstay apply`. Those that are refused are known too: only so the reason can be given."""
    group = parser.add_argument_group("runs")
    for name, help_text in (
        ("data", "data that overrides the manifest's data (YAML or JSON); read in every run"),
        ("values", "additional roots for lookups, one per top-level key; read in every run"),
        ("facts", "facts that override the host's facts; read in every run"),
    ):
        add_list_option(group, f"--{name}", "FILE", help_text)
    add_list_option(group, "--tag", "TAG", "only resources with this tag")
    add_argument(
        group, "--lock-wait", "DURATION", "how long a run waits for another run of this manifest, such as 5m"
    )
    add_switch(group, "--monitor-only", "run only the health checks")
    add_switch(group, "-v", "--verbose", "also write stable resources to the journal")
    for name in ("set", "fact"):
        parser.add_argument(f"--{name}", action="append", default=[], help=SUPPRESS)
    for name in ("report", "sha256", "ca-file"):
        parser.add_argument(f"--{name}", help=SUPPRESS)
    for name in ("diff", "detailed-exitcodes"):
        parser.add_argument(f"--{name}", action="store_true", help=SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    for name, reason in NOT_SCHEDULED.items():
        if getattr(arguments, name) not in (None, False, []):
            raise CommandRefused(f"--{name.replace('_', '-')} cannot be scheduled: {reason}")
    given = [f"--{name}" for name in ("every", "splay", "name", "lock_wait") if getattr(arguments, name) is not None]
    given += [f"--{name}" for name in (*VALUE_FILES, "tag", "monitor_only", "verbose") if getattr(arguments, name)]
    given = [option.replace("_", "-") for option in given]
    if arguments.manifest is None and given:
        raise CommandRefused(f"{given[0]} needs a MANIFEST: `mainstay schedule MANIFEST --every 30m`")
    if arguments.remove is not None and arguments.manifest is not None:
        raise CommandRefused("--remove takes the name of a schedule; leave out the MANIFEST")
    if arguments.manifest is None and arguments.remove is None:
        return _list(as_json=arguments.json)
    if os.geteuid() != 0:
        raise CommandRefused("`mainstay schedule` writes systemd units that run as root: run it as root")
    if not (arguments.noop or os.path.isdir(RUNTIME_DIRECTORY)):
        raise CommandRefused(
            f"`mainstay schedule` needs a running systemd, and {RUNTIME_DIRECTORY} does not exist; without it let cron or"
            " your init run `mainstay apply`"
        )
    if arguments.remove is not None:
        return _remove(arguments.remove, noop=arguments.noop)
    return _add(arguments)


# ---- adding ----
def _add(arguments: argparse.Namespace) -> int:
    if arguments.every is None:
        raise CommandRefused("--every is missing: how often, such as --every 30m")
    interval = parse_seconds(arguments.every, "--every")
    times = calendar_times(interval)
    if times is None:
        near = " or ".join(nearest_intervals(interval))
        raise CommandRefused(f"--every {arguments.every} does not fill a day evenly, or is not 7d; use {near}")
    splay_seconds = 0.0 if arguments.splay is None else parse_seconds(arguments.splay, "--splay")
    if splay_seconds >= interval:
        raise CommandRefused(f"--splay {arguments.splay} must be shorter than --every {arguments.every}")
    manifest = _manifest_path(arguments.manifest)
    name = _name_of(arguments, manifest)
    schedule = Schedule(name, manifest, arguments.every, arguments.splay, _run_options(arguments))
    _refuse_foreign_unit(schedule, is_named=arguments.name is not None)
    program = program_words()
    _refuse_untrusted(manifest, arguments, program)
    text = service_text(schedule, program)
    refuse_hidden_program(schedule.service, text)
    warn_of_temporary_program(schedule.service)
    files = {schedule.service: text, schedule.timer: timer_text(schedule, times, splay_seconds)}
    return install_units(f"schedule {schedule.name}", schedule.timer, files, noop=arguments.noop)


def _manifest_path(written: str) -> str:
    if written == "-":
        raise CommandRefused("standard input cannot be scheduled; write the manifest to a file")
    if is_url(written):
        raise CommandRefused("a URL cannot be scheduled; download the bundle to a file of root and schedule that")
    return unit_path(written)


def _run_options(arguments: argparse.Namespace) -> list[str]:
    """The options of the runs, as words of `mainstay apply`."""
    words: list[str] = []
    for name in VALUE_FILES:
        for file in getattr(arguments, name):
            words += [f"--{name}", unit_path(file)]
    for tag in arguments.tag:
        # One word: a tag may begin with a dash.
        words.append(f"--tag={tag}")
    if arguments.lock_wait is not None:
        parse_seconds(arguments.lock_wait, "--lock-wait")
        words += ["--lock-wait", arguments.lock_wait]
    words += ["--monitor-only"] if arguments.monitor_only else []
    return [*words, "--verbose"] if arguments.verbose else words


def _name_of(arguments: argparse.Namespace, manifest: str) -> str:
    name: str = arguments.name or ""
    if arguments.name is None:
        name = os.path.basename(manifest)
        for end in (".yaml", ".yml", ".tar.gz", ".tgz", ".zip"):
            if name.endswith(end):
                name = name[: -len(end)]
                break
    problem = name_problem(name)
    if problem is None:
        return name
    raise CommandRefused(
        f"{name!r} cannot be the name of a schedule: {problem}"
        if arguments.name is not None
        else f"the file name gives no name for the schedule ({problem}); give one with --name"
    )


def _refuse_foreign_unit(schedule: Schedule, *, is_named: bool) -> None:
    """Refuses to replace units of others; and by a default name, a schedule of another manifest."""
    for unit in (schedule.service, schedule.timer):
        text = _read_unit(unit)
        if text is None:
            continue
        timer = text if unit == schedule.timer else _read_unit(schedule.timer)
        known = None if timer is None else read_timer(schedule.name, timer)
        if timer is not None and known is None:
            raise CommandRefused(f"{unit} exists and was not written by `mainstay schedule`; give another --name")
        if known is not None and known.manifest != schedule.manifest and not is_named:
            raise CommandRefused(
                f"schedule {schedule.name} applies {known.manifest}; to replace it, add --name {schedule.name}, or give"
                " another --name"
            )


def _read_unit(unit: str) -> str | None:
    try:
        with open(f"{UNIT_DIRECTORY}/{unit}", "rb") as file:
            return file.read(LARGEST_TIMER_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandRefused(f"cannot read {UNIT_DIRECTORY}/{unit}: {error.strerror}") from None


def _refuse_untrusted(manifest: str, arguments: argparse.Namespace, program: list[str]) -> None:
    """Raises unless the manifest loads with its values, and only root can change what the timer will run."""
    from importlib.util import find_spec

    options = Options(tags=arguments.tag)
    with exit_on_faults(as_json=False):
        session, loaded = load(RunRequest(manifest, options=options, **value_layers(arguments)))
        refuse_unknown_tags(loaded, options)
    paths = [manifest]
    if session.host.bundle is None:
        children = (resource.child.chain[-1] for resource in loaded.resources if resource.child is not None)
        paths += dict.fromkeys(children)
    values = [unit_path(file) for name in VALUE_FILES for file in getattr(arguments, name)]
    reasons = [(path, "run as root", why_untrusted(path, with_neighbours=True)) for path in paths]
    reasons += [(path, "decide what root does", why_untrusted(path)) for path in values]
    for path, effect, reason in reasons:
        if reason is not None:
            raise CommandRefused(f"{path} would {effect}, but {reason}; change owner and mode, or use another place")
    specs = [find_spec(name) for name in ("mainstay", "yaml", "jinja2", "markupsafe")]
    packages = [folder for spec in specs if spec is not None for folder in spec.submodule_search_locations or ()]
    reason = why_program_untrusted(program, packages)
    if reason is not None:
        raise CommandRefused(
            f"this program would run as root, but {reason}; install mainstay where only root can write, such as /opt"
        )


# ---- removing ----
def _remove(name: str, *, noop: bool) -> int:
    known = {schedule.name: schedule for schedule in _schedules()}
    if name not in known:
        hint = did_you_mean(name, list(known))
        raise CommandRefused(f"there is no schedule {name!r}{hint}; `mainstay schedule` lists them")
    schedule = known[name]
    # With the time of the last run, a new schedule of this name would make up for missed times at once.
    stamp = f"{STAMP_DIRECTORY}/stamp-{schedule.timer}"
    return remove_units(f"schedule {name}", schedule.timer, [schedule.service, schedule.timer], stamp, noop=noop)


# ---- listing ----
def _schedules() -> list[Schedule]:
    try:
        units = sorted(os.listdir(UNIT_DIRECTORY))
    except FileNotFoundError:
        return []
    names = [
        unit[len(PREFIX) : -len(".timer")] for unit in units if unit.startswith(PREFIX) and unit.endswith(".timer")
    ]
    found = (read_timer(name, _read_unit(f"{PREFIX}{name}.timer") or "") for name in names)
    return [schedule for schedule in found if schedule is not None and name_problem(schedule.name) is None]


def _list(*, as_json: bool) -> int:
    schedules = _schedules()
    timers = _show([schedule.timer for schedule in schedules], TIMER_PROPERTIES)
    services = _show([schedule.service for schedule in schedules], SERVICE_PROPERTIES)
    rows = [_row(schedule, timers[number], services[number]) for number, schedule in enumerate(schedules)]
    if as_json:
        print_json(rows)
    elif rows:
        _print_rows(rows)
    else:
        print("There is no schedule. `mainstay schedule MANIFEST --every 30m` adds one.")
    return 0


def _row(schedule: Schedule, timer: dict[str, str], service: dict[str, str]) -> dict[str, Any]:
    return {
        **vars(schedule),
        "active": timer["ActiveState"] == "active",
        "next_run": _time_of(timer["NextElapseUSecRealtime"]),
        "last_run": _time_of(timer["LastTriggerUSec"]) or _time_of(service["ExecMainExitTimestamp"]),
        "last_result": _result_of(service),
    }


def _result_of(service: dict[str, str]) -> str | None:
    """How the last run ended; None if systemd knows none since the boot."""
    if service["ActiveState"] in ("activating", "deactivating"):
        return "running"
    if not service["ExecMainExitTimestamp"]:
        return None
    status = service["ExecMainStatus"]
    if service["Result"] == "success":
        return "another run was in progress" if status == LOCKED_STATUS else "success"
    if service["Result"] == "exit-code":
        return {"1": "a resource failed", "2": "the manifest does not load"}.get(status, f"failed with exit {status}")
    return f"failed: {service['Result']}"


def _show(units: list[str], properties: str) -> list[dict[str, str]]:
    """The properties of the units. Times are in UTC: their texts are read below."""
    import subprocess

    if not units:
        return []
    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    command = ["systemctl", "show", "--system", "-p", properties, "--", *units]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=QUERY_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        raise CommandRefused(f"systemctl show failed: {error.stderr.strip()[-500:]}", exit_code=EXIT_FAILED) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no answer after {QUERY_SECONDS} s"
        raise CommandRefused(f"systemctl cannot be used: {reason}", exit_code=EXIT_FAILED) from None
    blocks = [block.splitlines() for block in done.stdout.strip("\n").split("\n\n")]
    # A property that this systemd does not have is left out.
    empty = dict.fromkeys(properties.split(","), "")
    found = [{**empty, **dict(line.split("=", 1) for line in lines)} for lines in blocks]
    if len(found) != len(units):
        raise CommandRefused("systemctl show failed: it left out units", exit_code=EXIT_FAILED)
    return found


def _time_of(text: str) -> str | None:
    """`Tue 2026-11-17 01:00:00 UTC` as RFC 3339; None for no time."""
    words = text.split(" ")
    return f"{words[1]}T{words[2]}Z" if len(words) == 4 and words[3] == "UTC" else None


def _print_rows(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        every = row["every"] + (f" + {row['splay']}" if row["splay"] else "")
        following = row["next_run"] or ("running" if row["last_result"] == "running" else "stopped")
        last = row["last_run"] or "never"
        result = row["last_result"] or ("-" if row["last_run"] is None else "unknown since boot")
        lines.append([row["name"], every, following, last, result, row["manifest"]])
    print_table(("NAME", "EVERY", "NEXT RUN", "LAST RUN", "LAST RESULT", "MANIFEST"), lines)
