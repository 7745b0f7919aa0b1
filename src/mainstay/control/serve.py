"""The composition root: builds store, vault, application and background tasks from the settings, and serves."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import structlog
import uvicorn

from mainstay.control import service_manager
from mainstay.control.api.application import Application, make_application
from mainstay.control.api.certificates import ReloadingCertificate, load_certificate
from mainstay.control.api.connections import bounded_protocol
from mainstay.control.api.contract import Dependencies, Readiness
from mainstay.control.api.limits import FailedAttempts, RequestLimits
from mainstay.control.api.open_connections import watch
from mainstay.control.api.prometheus import ServerMetrics, forget_worker, share_between_workers
from mainstay.control.background import TASKS, run_task
from mainstay.control.domain.retention import RetentionPeriods
from mainstay.control.log_lines import render_line
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.secret_sealing import check_key_of_newest, check_keys
from mainstay.control.operations.machinery.server_clock import start_clock
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.operations.tokens import make_first_admin
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.settings import BadSettings, ServerSettings
from mainstay.control.store.engine.contract import Store
from mainstay.control.store.engine.open import connected_store
from mainstay.control.store.engine.sqlite import SqliteStore
from mainstay.control.vault.keys import find_vault, load_vault
from mainstay.control.web.pipeline import WebPipeline
from mainstay.control.workers import Supervisor, shared_metrics_directory
from mainstay.foundation.addresses import is_loopback_host
from mainstay.foundation.private_files import write_private_file

# Longer than the longest long poll of an agent, which is a minute.
KEEP_ALIVE_SECONDS = 75
BACKLOG = 4096
SHUTDOWN_SECONDS = 20

log = structlog.get_logger("mainstay.server")


def now() -> datetime:
    return datetime.now(UTC)


def _configure_logging(settings: ServerSettings) -> None:
    level = getattr(logging, settings.log_level.upper())
    renderer: structlog.types.Processor = render_line
    if settings.log_format == "json":
        renderer = structlog.processors.JSONRenderer()
    elif sys.stderr.isatty():
        # The default formatter depends on whether `rich` is installed.
        renderer = structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables, which may contain secrets.
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def prepare_data_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSettings(f"cannot create the data directory {path}: {error.strerror}") from None


async def migrate(settings: ServerSettings) -> list[str]:
    prepare_data_directory(settings.data_path)
    async with connected_store(settings.store_url) as store:
        return await store.migrate()


@asynccontextmanager
async def opened(
    settings: ServerSettings, environment: Mapping[str, str], *, alone: bool = False
) -> AsyncIterator[tuple[Store, OperationTools]]:
    """The migrated store and the tools of operations. The key is checked before the first migration, and only a new
    embedded database gets a new key."""
    if settings.is_embedded:
        prepare_data_directory(settings.data_path)
    async with connected_store(settings.store_url) as store:
        prepare_data_directory(settings.data_path)
        with data_directory_lock(settings.data_path, alone=alone):
            if settings.vault == "on" and not await store.is_new():
                async with store.reading() as tx:
                    await check_key_of_newest(tx, find_vault(settings, environment))
            await store.migrate()
            vault = load_vault(settings, environment)
            async with store.reading() as tx:
                await check_keys(tx, vault)
            yield store, OperationTools(Definitions(installed_rulebook()), vault)


def data_directory_lock(directory: Path, *, alone: bool) -> contextlib.AbstractContextManager[None]:
    """Shared by servers, exclusive for a key rotation: a running server would go on sealing with the old key."""
    reason = "a server uses it; stop the server first" if alone else "its vault key is being rotated"
    return _locked(directory / "lock", reason, alone=alone)


@contextlib.contextmanager
def _locked(path: Path, reason: str, *, alone: bool) -> Iterator[None]:
    """Released when the process ends, even if it is killed. Raises `BadSettings` with the reason if it is taken."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BadSettings(f"the data directory {path.parent} is in use: {reason}") from None
    try:
        yield
    finally:
        os.close(handle)


def _only_server(settings: ServerSettings) -> contextlib.AbstractContextManager[None]:
    """Only PostgreSQL notifies other replicas of commits; a second server on SQLite would miss them."""
    if not settings.is_embedded:
        return contextlib.nullcontext()
    prepare_data_directory(settings.data_path)
    return _locked(settings.data_path / "server.lock", "another server uses it; replicas need PostgreSQL", alone=True)


async def _make_admin_token(store: Store, tools: OperationTools, settings: ServerSettings) -> str | None:
    """Creates the admin token on the first start with a new database; None on every other start."""
    path = settings.data_path / "admin.token"
    async with store.transaction() as tx:
        value = await make_first_admin(UnitOfWork(tx, now(), tools))
        if value is not None:
            # Before the commit: if the file cannot be written, the next start creates the token again.
            write_private_file(path, f"{value}\n".encode(), durable=True)
    return value


async def _serve(settings: ServerSettings, environment: Mapping[str, str]) -> None:
    _configure_logging(settings)
    sockets, certificate = _bind(settings, environment)
    with _only_server(settings):
        await _run_servers(settings, environment, sockets, certificate)


def _bind(
    settings: ServerSettings, environment: Mapping[str, str]
) -> tuple[list[socket.socket], ReloadingCertificate | None]:
    """Key, certificate and ports first: a refused start creates nothing."""
    find_vault(settings, environment)
    certificate = load_certificate(settings)
    places = [(settings.host, settings.port)]
    if settings.health_port:
        places.append((settings.health_host or settings.host, settings.health_port))
    return [_listen(host, port) for host, port in places], certificate


def _run_workers(settings: ServerSettings, environment: Mapping[str, str]) -> None:
    if settings.is_embedded:
        raise BadSettings(
            "several workers need PostgreSQL: the embedded database has one writer; set --database-url, or leave out"
            " --workers"
        )
    _configure_logging(settings)
    sockets, certificate = _bind(settings, environment)
    token = asyncio.run(_prepare(settings, environment))
    with shared_metrics_directory(settings.data_path) as directory:

        def serve(number: int) -> None:
            import uvloop

            share_between_workers(str(directory))
            uvloop.run(_run_servers(settings, environment, sockets, certificate, worker=number))

        supervisor = Supervisor(
            settings.workers, serve, on_check=lambda: service_manager.notify(environment, service_manager.ALIVE)
        )
        supervisor.on_end = lambda process: forget_worker(str(directory), process)
        _print_address(settings, sockets[0], token)
        service_manager.notify(environment, service_manager.READY)
        supervisor.run()


async def _prepare(settings: ServerSettings, environment: Mapping[str, str]) -> str | None:
    """Migrates the database, and creates the admin token on the first start."""
    async with opened(settings, environment) as (store, tools):
        return await _make_admin_token(store, tools, settings)


async def _run_servers(
    settings: ServerSettings,
    environment: Mapping[str, str],
    sockets: Sequence[socket.socket],
    certificate: ReloadingCertificate | None,
    worker: int | None = None,
) -> None:
    """`worker` None: this process is the whole server."""
    async with opened(settings, environment) as (store, tools_without_clock):
        token = await _make_admin_token(store, tools_without_clock, settings)
        clock = await start_clock(store)
        tools = replace(tools_without_clock, clock=clock, retention=_retention_periods(settings))
        if isinstance(store, SqliteStore) and store.lost_pages:
            log.warning(
                "the write-ahead log of the database is damaged: the changes in its last pages are lost",
                pages=store.lost_pages,
            )
        measures = ServerMetrics()
        dependencies = Dependencies(
            store,
            settings,
            tools,
            clock,
            measures,
            RequestLimits(settings.rate_limit),
            FailedAttempts("codes"),
            FailedAttempts("tokens"),
            Readiness(),
        )
        web = WebPipeline(dependencies)
        applications = [make_application(dependencies, pages=web.routes(), error_page=web.error_page)]
        if settings.health_port:
            applications.append(make_application(replace(dependencies, is_health_port=True), health_only=True))
        servers = [
            # Monitoring and load balancers speak plain HTTP on the second port.
            Server(application, settings, listening, None if number else certificate)
            for number, (application, listening) in enumerate(zip(applications, sockets, strict=True))
        ]
        _stop_on_signals(servers, dependencies.readiness)
        tasks = [
            asyncio.create_task(run_task(task, store, tools, clock, measures.count_pass))
            for task in (TASKS if worker in (None, 0) else ())
        ]
        if worker is None:
            _print_address(settings, sockets[0], token)
            service_manager.notify(environment, service_manager.READY)
            tasks.append(asyncio.create_task(service_manager.send_signs_of_life(environment)))
        tasks.append(asyncio.create_task(watch(dependencies.open_connections, store, clock)))
        if certificate is not None:
            tasks.append(asyncio.create_task(certificate.watch()))
        try:
            await asyncio.gather(*(server.serve() for server in servers))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _retention_periods(settings: ServerSettings) -> RetentionPeriods:
    return RetentionPeriods(
        events=settings.retention_events_days,
        jobs=settings.retention_jobs_days,
        reports=settings.retention_reports_days,
        services=settings.retention_services_days,
        metrics=settings.retention_metrics_days,
    )


def _stop_on_signals(servers: Sequence[Server], readiness: Readiness) -> None:
    """The first signal finishes requests and answers long polls; a second one does not wait for them."""

    def stop() -> None:
        for server in servers:
            server.force_exit = readiness.stopping.is_set()
            server.should_exit = True
        readiness.stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        # Clients that connect before the start is complete wait. Another server on this port is refused at once.
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise BadSettings(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another --host or --port"
        ) from None
    return listening


class Server(uvicorn.Server):
    """uvicorn on our own socket, without signal handlers, since one process may run two."""

    def __init__(
        self,
        application: Application,
        settings: ServerSettings,
        listening: socket.socket,
        certificate: ReloadingCertificate | None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                loop="none",
                http=bounded_protocol(settings.max_body_bytes, settings.request_seconds),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=settings.trusted_proxies,
            )
        )
        self.config.load()
        self.config.ssl = None if certificate is None else certificate.context
        self.listening = listening

    async def serve(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().serve([self.listening])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _print_address(settings: ServerSettings, listening: socket.socket, token: str | None) -> None:
    """The only output on stdout. The admin token is printed only on a terminal: a journal keeps what it receives."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.tls_certificate else "http"
    address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    lines = [f"Mainstay listens on {address} (open it in a browser; API documentation: {address}/docs)"]
    if token is not None:
        if sys.stdout.isatty():
            lines.append(f"Admin token, shown only once: {token}")
        lines.append(f"The admin token is in {settings.data_path / 'admin.token'}.")
    print("\n".join(lines), flush=True)
    if not is_loopback_host(settings.host) and not settings.tls_certificate:
        log.warning("tokens are sent unencrypted: the address is not loopback and TLS is off")


def run_server(settings: ServerSettings, environment: Mapping[str, str]) -> None:
    import uvloop

    raise_file_limit()
    collect_garbage_rarely()
    if settings.workers > 1:
        _run_workers(settings, environment)
        return
    uvloop.run(_serve(settings, environment))


def collect_garbage_rarely() -> None:
    """A body of 4 MiB may hold a million lists. With the default threshold the collector runs for every 700 of them, and
    parsing the body blocks the server for 1.8 s instead of 0.3 s."""
    gc.collect()
    # Modules and definitions live as long as the process.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def raise_file_limit() -> None:
    """Every long poll of an agent is an open file."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
