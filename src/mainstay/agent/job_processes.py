"""Runs each job in a process of its own, so that it can neither delay nor crash the agent and other jobs.

The processes are forked from one that has imported the engine and has no threads. What a job needs, secrets included, goes
through a socket, never through arguments or the environment."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn, Protocol

from mainstay.agent.stop_flag import LeaseStopFlag, now
from mainstay.foundation.private_files import Closing

STOP_CHECK_SECONDS = 0.1
# A process that must end at once is killed after this time. Its command, such as a package manager, may go on.
KILL_SECONDS = 60.0
AGENT_ENDED = "the agent ended"


class Work(Protocol):
    """What a process does. It is sent to the process, and its result comes back."""

    def execute(self, stop: LeaseStopFlag, send: Callable[[Any], None]) -> Any: ...


class ProcessEnded(Exception):
    """The process ended without a result: it crashed, was killed, or could not be started."""


class JobProcesses:
    def __init__(self) -> None:
        """Call it before any thread is started, after the modules of the engine are imported."""
        # Whether no process can be started any more: the one that forks them was killed.
        self.has_ended = False
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._requests.close()
            _serve(theirs)
        theirs.close()

    def run(self, work: Work, stop: LeaseStopFlag, receive: Callable[[Any], None]) -> Any:
        """Returns the result of the work. `receive` gets what it sends meanwhile. Raises `ProcessEnded`."""
        ours, theirs = Pipe()
        with ours:
            with theirs:
                self._start(theirs)
            try:
                ours.send(work)
                with Closing(os.pidfd_open(ours.recv())) as process:
                    return self._follow(ours, process, stop, receive)
            except (EOFError, OSError):
                raise ProcessEnded from None

    def _follow(self, ours: Connection, process: int, stop: LeaseStopFlag, receive: Callable[[Any], None]) -> Any:
        sent = kill_at = None
        while True:
            if (current := stop.export()) != sent:
                ours.send(current)
                sent = current
            if kill_at is None and stop.at_once:
                kill_at = now() + KILL_SECONDS
            if kill_at is not None and now() >= kill_at:
                signal.pidfd_send_signal(process, signal.SIGKILL)
            if ours.poll(STOP_CHECK_SECONDS):
                is_result, message = ours.recv()
                if is_result:
                    return message
                receive(message)

    def _start(self, theirs: Connection) -> None:
        try:
            socket.send_fds(self._requests, [b"\0"], [theirs.fileno()])
        except OSError:
            self.has_ended = True
            # As an operator would stop the agent; it then fails, and is restarted.
            os.kill(os.getpid(), signal.SIGTERM)
            raise ProcessEnded from None


def _serve(requests: socket.socket) -> NoReturn:
    """Forks a process for each socket that arrives, until the agent has ended."""
    # The agent gets the signals, and asks its jobs to stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # The kernel reaps the processes.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Collections would copy the pages that the processes share.
    gc.freeze()
    try:
        while True:
            _, descriptors, _, _ = socket.recv_fds(requests, 1, 1, socket.MSG_CMSG_CLOEXEC)
            if not descriptors:
                break
            # Without memory for a process the agent sees the end of the socket.
            with suppress(OSError):
                if os.fork() == 0:
                    requests.close()
                    _work(Connection(descriptors[0]))
            os.close(descriptors[0])
    finally:
        # Nothing of the agent must run here, such as its exit functions.
        os._exit(0)


def _work(agent: Connection) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        agent.send(os.getpid())
        work = agent.recv()
        stop = LeaseStopFlag()
        stop.adopt(agent.recv())
        threading.Thread(target=_follow, args=(agent, stop), daemon=True).start()

        def send(message: Any, *, is_result: bool = False) -> None:
            # Without an agent the run is stopping already.
            with suppress(OSError):
                agent.send((is_result, message))

        send(work.execute(stop, send), is_result=True)
    finally:
        os._exit(0)


def _follow(agent: Connection, stop: LeaseStopFlag) -> None:
    try:
        while True:
            stop.adopt(agent.recv())
    except (EOFError, OSError):
        stop.request(AGENT_ENDED, at_once=True)
