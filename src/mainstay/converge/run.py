"""Loads and runs manifests: manifest → data and templates → resources in order → type → provider → host → report.

This is the library interface; the command line and the agent call `run` and `load`.
"""

from __future__ import annotations

from contextlib import contextmanager

from mainstay.converge import providers, resources
from mainstay.converge.apply import Options, Run
from mainstay.converge.contract import NEW_SECRET, HealthCheckKind
from mainstay.converge.failures import Failure, Missing, StopFlag
from mainstay.converge.history import History, Ledger, SingleResources, TempFileJournal
from mainstay.converge.host.clock import monotonic
from mainstay.converge.host.files import Files, FileWrite
from mainstay.converge.host.host import Host, process_environment
from mainstay.converge.host.sources import BundleTrust, ManifestText, open_child, open_manifest, read_bytes
from mainstay.converge.host.state import (
    Busy,
    StateDirectory,
    Unusable,
    configuration_path,
    new_run_id,
    state_path,
    write_report_file,
)
from mainstay.converge.json_lines import report_pieces
from mainstay.converge.manifest import Manifest, OpenedManifest, Source
from mainstay.converge.manifest.hierarchy import overlay
from mainstay.converge.manifest.resolve import resolve
from mainstay.converge.manifest.scope import Unresolved, taint
from mainstay.converge.redaction import Redactor, secret_values
from mainstay.converge.report import Event, Observer, Report
from mainstay.converge.value_kinds import describe
from mainstay.foundation import Struct
from mainstay.foundation.faults import DoesNotLoad, Fault
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.document import decode, parse
from mainstay.foundation.yaml.scalars import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from mainstay.converge.host.backups import Backup
    from mainstay.converge.host.state import Lock
    from mainstay.converge.manifest.manifest_warnings import Surroundings

# How the origin of a data layer from `--set` begins.
SETTING = "--set "


class RunRequest(Struct):
    """A request for a run, with everything that the caller provides."""

    manifest: str = "-"
    # A document built by the caller instead of a file; `manifest` is then only its name.
    document: Node | None = None
    options: Options = Options()
    data_layers: Sequence[Mapping[str, Any]] = ()
    facts_layers: Sequence[Mapping[str, Any]] = ()
    # Additional template roots; texts of class `Tainted` in them are secrets.
    roots: Mapping[str, Any] = {}
    identity: str | None = None
    # The directory of relative sources of `document`; for a file it is the file's own directory.
    working_directory: str = "/"
    state_directory: str | None = None
    environ: Mapping[str, str] | None = None
    # None if the caller neither observes nor stops the run.
    observer: Observer | None = None
    stop: StopFlag | None = None
    # Called after the manifest is loaded and before anything can change.
    starting: Callable[[], None] | None = None
    lock_wait_seconds: float = 0.0
    # Whether the report is kept for `mainstay history`.
    keep_history: bool = True
    # Whether the host remembers the files that runs of this identity write, so that reports distinguish them from files of others.
    remember_files: bool = False
    # Whether the document is one resource, whose references lead to resources of such requests before.
    is_single: bool = False
    # The unpacked bundle that the manifest belongs to: what it names by a relative path must be inside.
    bundle: str | None = None
    # Needed if `manifest` is the URL of a bundle.
    trust: BundleTrust | None = None
    # The id of the run, where the caller needs to know it before; default: a new one.
    run_id: str | None = None


class Locked(Exception):
    """Another run of the same manifest is in progress."""


class Session:
    """One request in progress: its host, and the values and functions for expressions."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        environ = request.environ if request.environ is not None else process_environment()
        self.state = StateDirectory(request.state_directory or state_path(environ))
        self.observer = request.observer or Observer()
        self.stop = request.stop or StopFlag()
        self.host = Host(request.run_id or new_run_id(), self.state, self.stop, noop=request.options.noop)
        self.host.environ = dict(environ)
        self.current: Run | None = None
        self._facts: dict[str, Any] | None = None
        # Manifests that others apply, by real path.
        self._opened: dict[str, OpenedManifest] = {}

    def source(self, text: ManifestText) -> Source:
        roots: dict[str, Callable[[], Any]] = {
            "facts": self.facts,
            "environ": lambda: dict(self.host.environ),
        }
        for name, value in self.request.roots.items():
            roots[name] = lambda value=value: value  # type: ignore[misc]  # binds the loop's value
        return Source(
            find_type=resources.find,
            type_names=resources.names,
            provider_names=providers.names,
            health_check_kinds=_health_check_kinds,
            roots=roots,
            functions={"file": self._read_file, "template": self.read_template, "result": self.result},
            outer_layers=self.request.data_layers,
            reference_problem=SingleResources(self.state).reference_problem if self.request.is_single else None,
            directory=text.working_directory,
            real_path=text.path,
            open_child=self._open_child,
            work_in=self.host.work_in,
        )

    def _open_child(self, path: str, parent: str, directory: str) -> OpenedManifest:
        """Reads a manifest that another one applies, once."""
        from mainstay.converge.manifest import OpenedManifest
        from mainstay.converge.manifest.children import ChildRefused

        try:
            text = open_child(path, parent, directory, self.host.bundle)
        except DoesNotLoad as refusal:
            raise ChildRefused(f"{shorten(refusal.faults[0].file, 200)} {refusal.faults[0].message}") from None
        found = self._opened.get(text.identity)
        if found is None or found.file != text.name:
            written = decode(text.content, text.name) or "\n"
            found = OpenedManifest(
                text.name, written, parse(written, text.name), text.identity, text.working_directory
            )
            self._opened[text.identity] = found
        return found

    def facts(self) -> dict[str, Any]:
        """Built-in facts, overlaid by `facts.d` of the configuration directory and the caller's facts."""
        from mainstay.converge.host.facts import built_in, custom_files

        if self._facts is not None:
            return self._facts
        facts = built_in()
        try:
            custom = [read_values(path) for path in custom_files(configuration_path(self.host.environ))]
        except DoesNotLoad as error:
            if self.current is None:
                raise
            # First used during the run: too late to refuse the manifest.
            raise Failure(str(error)) from None
        for layer in (*custom, *self.request.facts_layers):
            facts = overlay(facts, layer)
        self._facts = facts
        return facts

    def write_report(self, path: str, report: Report) -> None:
        report.complete(self.host.files)
        write_report_file(path, report_pieces(report))

    # ---- functions of expressions ----
    def _read_file(self, path: str) -> str:
        place, files = self.host.resolve_source(str(path)), self.host.files
        try:
            content = files.content(files.find_source(place)[0], LARGEST_READ_BYTES)
        except FileNotFoundError:
            raise Missing(f"file('{path}'): {place} does not exist", path=place) from None
        except OSError as error:
            raise Unresolved(f"file('{path}'): {error.strerror}") from None
        except Failure as error:
            raise Unresolved(f"file('{path}'): {error}") from None
        if content is None:
            raise Unresolved(f"file('{path}'): larger than {LARGEST_READ_BYTES // 1024 // 1024} MB")
        text = content.decode("utf-8", "surrogateescape")
        if self.current is not None and self.host.is_secret(place):
            self.current.home.scope.tainted = NEW_SECRET
        return text

    def read_template(self, path: str) -> str:
        from mainstay.converge.manifest.evaluation import render_file

        if self.current is None:
            raise Unresolved("template() is available only in properties that are rendered in the run")
        return render_file(self._read_file(path), path, self.current.home.scope, self._read_file)

    def result(self, reference: str) -> dict[str, Any]:
        if self.current is None:
            raise Unresolved("result() is available only in properties that are rendered in the run")
        written = str(reference)
        event = self.current.events.get(self.current.home.aliases.get(written, written))
        if event is None or (event.resource.declared_in or self.current.manifest) is not self.current.home:
            raise Unresolved(f"result('{reference}'): no earlier resource has this name")
        if event.noop and event.changed:
            raise Missing(f"the result of {reference} is unknown before it runs")
        found = _describe_result(event, self.host.files)
        stdout = found["stdout"]
        if event.resource.sensitive or self.current.redactor.clean_of(event.resource, stdout) != stdout:
            self.current.home.scope.tainted = NEW_SECRET
            found = taint(found)
        return found


LARGEST_READ_BYTES = 16 * 1024 * 1024


def _describe_result(event: Event, files: Files) -> dict[str, Any]:
    state = event.state
    found: dict[str, Any] = {
        "outcome": event.outcome,
        "changed": event.changed,
        "stdout": "",
        "output": event.output or "",
    }
    if state is not None:
        found["stdout"] = getattr(state, "stdout", "")
        found["exit_code"] = getattr(state, "exit_code", None)
        state.complete(files)
        found["state"] = state.as_json()
        if event.resource.child is not None:
            found["outputs"] = getattr(state, "outputs", None) or {}
    return found


def _health_check_kinds() -> Mapping[str, HealthCheckKind]:
    """Loaded on first need: most manifests have no health checks."""
    from mainstay.converge.health_checks import kinds

    return kinds()


def load(request: RunRequest) -> tuple[Session, Manifest]:
    """Loads a manifest and checks it as far as possible without a run; raises `DoesNotLoad`."""
    with _loaded(request) as (session, manifest, _):
        return session, manifest


@contextmanager
def _loaded(request: RunRequest) -> Iterator[tuple[Session, Manifest, ManifestText]]:
    """Loads a manifest. A bundle is unpacked until the block ends."""
    session = Session(request)
    text = _open_text(session)
    try:
        yield session, _resolve_text(session, text), text
    finally:
        text.close()


class Inspection(Struct):
    """A manifest that loads, and what is most likely not intended in it."""

    manifest: Manifest
    warnings: list[Fault]
    # Keys of `--set` that nothing looks up, each with its warning.
    unused: Mapping[str, str]


def inspect(request: RunRequest) -> Inspection:
    """Loads a manifest like `load`, and looks for warnings while the files of a bundle are unpacked."""
    from mainstay.converge.manifest.manifest_warnings import find_warnings

    with _loaded(request) as (session, manifest, _):
        warnings = find_warnings(manifest, _surroundings(session))
        return Inspection(manifest, warnings, _unused_settings(session, manifest))


def missing_files(request: RunRequest) -> list[Fault]:
    """Loads a manifest like `load`, and returns the files that it names beside it and that do not exist."""
    from mainstay.converge.manifest.manifest_warnings import find_missing_files

    with _loaded(request) as (session, manifest, _):
        return find_missing_files(manifest, _surroundings(session))


def _surroundings(session: Session) -> Surroundings:
    from mainstay.converge.manifest.manifest_warnings import Surroundings

    def exists(path: str) -> bool:
        try:
            session.host.files.stat(session.host.resolve_source(path))
        except OSError as error:
            return not isinstance(error, (FileNotFoundError, NotADirectoryError))
        except Failure:
            # Outside the bundle.
            return False
        return True

    def read(path: str) -> str | None:
        try:
            return session._read_file(path)
        except (Failure, Unresolved):
            return None

    return Surroundings(exists, read, session.host.work_in)


def _unused_settings(session: Session, manifest: Manifest) -> Mapping[str, str]:
    origins = [getattr(layer, "origin", "") for layer in session.request.data_layers]
    keys = [origin.removeprefix(SETTING) for origin in origins if origin.startswith(SETTING)]
    if not keys or not manifest.text:
        return {}
    from mainstay.converge.manifest.manifest_warnings import unused_settings

    return unused_settings(manifest, keys, _surroundings(session))


def run(request: RunRequest) -> tuple[Session, Report]:
    """Runs a manifest. Raises `DoesNotLoad` or `Locked` before anything is changed."""
    with _loaded(request) as (session, manifest, text):
        unused = _unused_settings(session, manifest)
        report = _apply_loaded(session, manifest, request.identity or text.identity)
        report.warnings += unused.values()
        return session, report


def _open_text(session: Session) -> ManifestText:
    request = session.request
    if request.document is not None:
        return ManifestText(request.manifest, b"", request.working_directory, request.identity or request.manifest)
    return open_manifest(request.manifest, session.state, session.host.run_id, request.trust)


def _resolve_text(session: Session, text: ManifestText) -> Manifest:
    session.host.work_in(text.working_directory)
    session.host.bundle = text.working_directory if text.is_bundle else session.request.bundle
    document = session.request.document
    written = decode(text.content, text.name)
    if document is None:
        # An empty file has a first line; only a document built by the caller has none.
        written = written or "\n"
        document = parse(written, text.name)
    try:
        return resolve(document, text.name, written, session.source(text))
    except DoesNotLoad as refusal:
        redactor = Redactor(secret_values(session.request.roots), plain=session.request.roots)
        for fault in refusal.faults:
            fault.message = redactor.clean(fault.message)
        raise DoesNotLoad(refusal.faults) from None


def _apply_loaded(session: Session, manifest: Manifest, identity: str) -> Report:
    request, state = session.request, session.state
    refuse_unknown_tags(manifest, request.options)
    is_dry = request.options.noop or request.options.monitor_only
    folder = state.identity_path(identity) if is_dry else state.identity_directory(identity)
    current = session.current = _prepare_run(session, manifest, folder)
    single = SingleResources(state) if request.is_single else None
    if single is not None:
        current.events.update(single.earlier_events(manifest.resources[0]))
        current.ledger.about_to_change = lambda name: single.about_to_change(name, session.host.run_id)
    if request.starting is not None:
        request.starting()
    if is_dry:
        current.ledger.load(_subscriptions(manifest))
        with session.host.interruption:
            report = current.run()
        _keep_report(session, report)
        return report
    with _lock(session, manifest, folder):
        report = _run_locked(session, current, folder, identity, single)
        _keep_report(session, report)
        return report


def _prepare_run(session: Session, manifest: Manifest, folder: str) -> Run:
    request, host = session.request, session.host
    if request.remember_files:
        from mainstay.converge.host.written_files import WrittenFiles

        host.written_files = WrittenFiles(f"{folder}/written")
    current = Run(
        manifest,
        host,
        choose_provider=providers.choose,
        ledger=Ledger(f"{folder}/owed"),
        observer=session.observer,
        stop=session.stop,
        clock=monotonic,
        options=request.options,
        redactor=Redactor(secret_values(request.roots), manifest.types, plain=request.roots),
    )
    host.show_line = lambda line: _show_line(current, line)
    host.about_to_wait = session.observer.about_to_wait
    _keep_secret_files(manifest, host)
    return current


def _subscriptions(manifest: Manifest) -> dict[str, list[str]]:
    return {
        resource.key_of(resource.id): [resource.key_of(trigger) for trigger in resource.subscribe]
        for resource in manifest.resources
        if resource.subscribe
    }


def _lock(session: Session, manifest: Manifest, folder: str) -> Lock:
    wait_seconds = session.request.lock_wait_seconds
    try:
        return session.state.lock(f"{folder}/lock", wait_seconds=wait_seconds, stop=session.stop)
    except Busy as busy:
        raise Locked(
            f"another run of {manifest.file} is in progress ({busy}); wait for it, or use --lock-wait"
        ) from None


def _run_locked(session: Session, current: Run, folder: str, identity: str, single: SingleResources | None) -> Report:
    """Runs with a journal, by which the next run cleans up if this one is killed."""
    host, ledger = session.host, current.ledger
    journal = TempFileJournal(f"{folder}/journal", host.run_id)
    journal.clean_up(host.files.remove_temps)
    host.watch_commands(f"{folder}/running")
    host.files.announce_directory = journal.announce
    ledger.load(_subscriptions(current.manifest))
    try:
        with host.interruption:
            report = current.run()
    finally:
        problem = _close_ledger(session, ledger, identity)
    if problem is not None:
        report.warnings.append(problem)
    if single is not None:
        single.save(current.manifest.resources[0], report.events[0])
    journal.close()
    if host.written_files is not None:
        host.written_files.close(session.state)
    if host.secret_files is not None:
        host.secret_files.close()
    return report


def refuse_unknown_tags(manifest: Manifest, options: Options) -> None:
    """Raises `DoesNotLoad` for a misspelt `--tag`, which would skip everything and look like success."""
    if not options.tags:
        return
    used = {tag for resource in manifest.resources for tag in resource.tags}
    unknown = sorted(set(options.tags) - used)
    if unknown:
        faults = [f"no resource has the tag {tag!r}{did_you_mean(tag, used)}" for tag in unknown]
        raise DoesNotLoad([Fault(manifest.file, None, None, fault) for fault in faults])


def _close_ledger(session: Session, ledger: Ledger, identity: str) -> str | None:
    """Stores what is still owed; returns a warning if it cannot be written, because the run itself is done."""
    try:
        # The directory may have been removed during the run.
        session.state.identity_directory(identity)
        ledger.close(session.state)
    except (OSError, Unusable) as error:
        if not ledger.owed:
            return None
        reason = error.strerror if isinstance(error, OSError) else error
        names = ", ".join(sorted(name.replace("\0", " / ") for name in ledger.owed))
        return f"the next run may not know of owed refreshes ({names}): {reason}"
    return None


def _keep_report(session: Session, report: Report) -> None:
    """Stores the report; a full disk is only a warning, because the run itself is done."""
    if not session.request.keep_history:
        return
    try:
        History(session.state).save(report)
    except (OSError, Unusable) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        report.warnings.append(f"the report could not be stored in {session.state.path}: {reason}")


def _keep_secret_files(manifest: Manifest, host: Host) -> None:
    """Marks sensitive files before the run, also those that the run does not reach."""
    for resource in manifest.resources:
        path = manifest.types[resource.type].written_path(resource) if resource.sensitive else None
        if path is not None:
            host.keep_secret(path)


def _show_line(current: Run, line: str) -> None:
    resource = current.current
    if resource is not None and not resource.sensitive:
        current.observer.output(resource, current.redactor.clean_of(resource, line))


def list_backups(path: str) -> list[Backup]:
    from mainstay.converge.host.backups import Backups

    return Backups(Session(RunRequest()).state).list(path)


def restore_backup(path: str, run_id: str | None) -> Backup:
    """Restores a backup; backs up the current file first."""
    host = Session(RunRequest()).host
    kept = [found for found in list_backups(path) if run_id is None or found.run_id.startswith(run_id)]
    if not kept:
        of_run = "" if run_id is None else f" from run {run_id}"
        raise Missing(f"{path} has no backup{of_run}; files are backed up if their resource has `backup: true`")
    old = host.files.lstat_or_none(path)
    if old is not None and old.st_mode & 0o170000 != 0o100000:
        raise Failure(f"{path} is not a regular file; it is not replaced")
    wanted = kept[0]
    content = host.files.read(wanted.content_path, wanted.size)
    if content is None or len(content) != wanted.size:
        raise Failure(f"the backup of {path} from run {wanted.run_id} is damaged; nothing is replaced")
    if old is not None:
        host.files.keep_backup(path, old)
    host.files.replace(FileWrite(path, wanted.uid, wanted.gid, wanted.mode, content, old=old))
    host.files.sync()
    return wanted


def read_values(path: str) -> dict[str, Any]:
    """Reads a YAML or JSON file of values, for `--data`, `--values` and `--facts`."""
    from mainstay.foundation.documents import read_json, read_yaml_values

    value = (read_json if path.endswith(".json") else read_yaml_values)(decode(read_bytes(path), path), path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DoesNotLoad([Fault(path, 1, 1, f"expected a map of values, got {describe(value)}")])
    return value
