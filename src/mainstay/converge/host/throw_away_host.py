"""Throw-away hosts: a real systemd as PID 1 in namespaces of this machine.

Each host has its own PID, mount, UTS, IPC, network and cgroup namespaces. Its root is an overlay of the machine's `/`
with a tmpfs on top: it sees every installed program, and its changes disappear with it. It has its own `/tmp`, `/run`
and `/dev`. A veth named eth0 connects it to the caller at GATEWAY. This protects against accidents, not against
hostile code: root inside is root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

GATEWAY = "198.18.0.1"  # from the range for benchmarks (RFC 2544), which is never routed
PREFIX = "sdhost-"
# Where a host sees what it has written itself, which its root mixes with what programs of the machine write.
LAYER = "/run/mainstay-layer"
CREATION_LOCK = "/run/mainstay-throw-away-hosts.lock"
OVERLAY_ATTEMPT = (
    "may not mount an overlay of / in a namespace",
    """
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/u /mnt/w /mnt/r
    mount -t overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w overlay /mnt/r
    """,
)
SYSTEMD = "/lib/systemd/systemd"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8"}
TOOLS = ("unshare", "nsenter", "mount", "umount", "pivot_root", "setpriv", "ip", "systemctl")
# Vendor units that would change the kernel, which the host shares with the machine.
MASKED = (
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-kernel-config.mount",
    "sys-fs-fuse-connections.mount",
    "dev-hugepages.mount",
    "systemd-modules-load.service",
    "proc-sys-fs-binfmt_misc.automount",
    "systemd-binfmt.service",
    "systemd-sysctl.service",
    "systemd-udevd.service",
    "systemd-journald-audit.socket",
    "kmod-static-nodes.service",
    "modprobe@.service",
    "systemd-timesyncd.service",
    "systemd-networkd.service",
    "ldconfig.service",
    "systemd-hwdb-update.service",
)
# Capabilities over the shared kernel: clock, modules, raw I/O, audit, kernel log.
DROPPED = "--bounding-set=-sys_time,-sys_module,-sys_rawio,-audit_control,-audit_read,-syslog"

# The first stage is PID 1 of the new PID namespace, and still sees the outer /proc and cgroups.
FIRST_STAGE = r"""
read -r outside _ </proc/self/stat
echo 0 >"$CG/cgroup.procs"
echo "$outside"
read -r ADDR                    # waits until eth0 exists; empty: no network
export ADDR
exec unshare --cgroup /bin/sh -euc "$SECOND_STAGE"
"""
# The second stage also has the cgroup namespace; it builds the root, enters it, and becomes systemd.
SECOND_STAGE = r"""
N=$M/root
mount -t proc -o nosuid,nodev,noexec proc "$N/proc"
mount --bind "$N/proc/sys" "$N/proc/sys"
mount --bind "$N/proc/sys/net" "$N/proc/sys/net"
mount -o remount,bind,ro "$N/proc/sys"
if [ -e "$N/proc/sysrq-trigger" ]; then
  mount --bind "$N/proc/sysrq-trigger" "$N/proc/sysrq-trigger"
  mount -o remount,bind,ro "$N/proc/sysrq-trigger"
fi
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$N/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$N/sys/fs/cgroup"
mount -t tmpfs -o mode=755,nosuid tmpfs "$N/dev"
for d in null:3 zero:5 full:7 random:8 urandom:9; do
  mknod -m 666 "$N/dev/${d%:*}" c 1 "${d#*:}"
done
mknod -m 666 "$N/dev/tty" c 5 0
mkdir "$N/dev/pts" "$N/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5,nosuid,noexec devpts "$N/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$N/dev/shm"
ln -s pts/ptmx "$N/dev/ptmx"
ln -s /proc/self/fd "$N/dev/fd"
for f in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${f%:*}" "$N/dev/${f#*:}"; done
: >"$N/dev/console"
mount --bind "$TTY" "$N/dev/console"
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$N/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$N/tmp"
hostname "$NAME"
ip link set lo up
if [ -n "$ADDR" ]; then
  ip addr replace "$ADDR" peer "$GATEWAY" dev eth0
  ip link set eth0 up
fi
mkdir "$N/run/old"
cd "$N"
pivot_root . run/old
# Lines "source<TAB>target": only now do links in the target mean the new root.
tab=$(printf '\t')
printf '%s' "$BINDS" | while IFS=$tab read -r src dst; do
  src=/run/old$src
  if [ -d "$src" ]; then mkdir -p "$dst"; else mkdir -p "${dst%/*}/"; : >>"$dst"; fi
  mount --rbind "$src" "$dst"
  mount -o remount,bind,ro "$dst"
done
mkdir "$LAYER"
mount --bind "/run/old$M/upper" "$LAYER"
mount -o remount,bind,ro "$LAYER"
umount -l /run/old
rmdir /run/old
mount --make-rshared /
exec </dev/null >/dev/console 2>&1 env -i container=sdhost PATH="$PATH" LANG=C.UTF-8 \
  setpriv "$DROPPED" "$SYSTEMD" --system --unit=multi-user.target --show-status=0 systemd.getty_auto=0 $MASKED
"""


class HostError(RuntimeError):
    """The host did not boot, or has ended."""


def _cgroup_directory() -> str | None:
    """Our own cgroup in a mounted cgroup2 hierarchy that we may write to."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    points = [words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2"]
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = [line[3:].strip() for line in lines if line.startswith("0::")] or [""]
    for point in points:
        for path in own:
            base = os.path.normpath(point + path)
            if os.access(f"{base}/cgroup.procs", os.W_OK):
                return base
    return None


def why_unavailable() -> str | None:
    """Why no host can run on this machine, or None."""
    if not sys.platform.startswith("linux"):
        return "not Linux"
    if os.geteuid() != 0:
        return f"needs root (effective uid is {os.geteuid()})"
    if not os.access(SYSTEMD, os.X_OK):
        return f"no {SYSTEMD} (package systemd)"
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=SEARCH_PATH)]
    if missing:
        return f"missing programs: {' '.join(missing)}"
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        return "the kernel has no overlay file system"
    if _cgroup_directory() is None:
        return "no writable cgroup2 mount"
    spaces = ("--mount", "--pid", "--fork", "--net", "--cgroup", "--uts", "--ipc")
    for purpose, script in (("may not create namespaces", "mount -t tmpfs tmpfs /mnt"), OVERLAY_ATTEMPT):
        command = ("unshare", *spaces, "/bin/sh", "-ec", script)
        attempt = subprocess.run(command, check=False, capture_output=True, text=True)
        if attempt.returncode:
            return f"{purpose}: {' '.join(attempt.stderr.split())}"
    return None


def remove_dead_hosts() -> None:
    """Removes what hosts left whose supervisor was killed. Their processes and mounts ended with the supervisor."""
    folder = tempfile.gettempdir()
    base = _cgroup_directory()
    with _creation_lock():
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name.startswith(PREFIX) and _is_dead(path):
                if base is not None:
                    _remove_cgroup(f"{base}/{name}")
                shutil.rmtree(path, ignore_errors=True)


def _is_dead(path: str) -> bool:
    """Whether no process holds the lock on the directory of a host, which belongs to root."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_uid != 0:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextlib.contextmanager
def _creation_lock() -> Iterator[None]:
    """A new directory is not locked for an instant, in which it must not look like that of a dead host."""
    descriptor = os.open(CREATION_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_visible_in_host(path: Path) -> bool:
    """The host sees the file system of / except its own directories. It can also write to what it sees."""
    own = ("/dev/", "/proc/", "/run/", "/sys/", "/tmp/")  # noqa: S108  # names to compare with
    return path.stat().st_dev == os.stat("/").st_dev and not f"{path}/".startswith(own)


class SystemdHost:
    """One host. `with SystemdHost("web") as host:` boots it, and at the end removes it with everything in it."""

    def __init__(
        self,
        name: str,
        *,
        read_only_binds: Sequence[Path] = (),
        network: bool = False,
        boot_seconds: float = 60.0,
        life_seconds: float = 3600.0,
        size: str = "1g",
        disk: Path | None = None,
        lower: Path | None = None,
    ) -> None:
        self.name = name
        # The root that the host sees below its own writes; None: that of this machine.
        self.lower = lower
        self.network = network
        self.binds = "".join(f"{path.resolve()}\t{path.resolve()}\n" for path in read_only_binds)
        self.boot_seconds = boot_seconds
        self.life_seconds = life_seconds
        self.size = size
        # A file system (not an overlay) that keeps the writes of the host for another boot.
        self.disk = disk
        self.address: str | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._directory = ""
        self._cgroup = ""
        self._lock = -1
        self._log: IO[bytes] | None = None

    # ---- boot and end ----
    def __enter__(self) -> Self:
        base = _cgroup_directory()
        if base is None:
            raise HostError(f"{self.name}: {why_unavailable()}")
        with _creation_lock():
            self._directory = tempfile.mkdtemp(prefix=PREFIX)
            # The supervisor inherits it: the lock lasts as long as one of the two.
            self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._cgroup = f"{base}/{os.path.basename(self._directory)}"
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-IS", __file__]
        command += [self._directory, self._cgroup, self.name, "1" if self.network else ""]
        command += [str(self.life_seconds), self.size, self.binds, str(self.disk or ""), str(self.lower or "/")]
        self._log = tempfile.TemporaryFile()  # closed by __exit__
        self._supervisor = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            cwd="/",
            env=ENVIRONMENT,
            pass_fds=(self._lock,),
        )
        try:
            self._wait_until_booted()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            return
        with contextlib.suppress(BrokenPipeError):
            # A byte or the end of the pipe makes the supervisor tear down.
            if supervisor.stdin is not None:
                supervisor.stdin.write(b"q")
                supervisor.stdin.close()
        try:
            supervisor.wait(20)
        except subprocess.TimeoutExpired:
            supervisor.kill()  # PID 1 dies with it
            supervisor.wait()
        if os.path.isdir(self._directory):
            _remove_cgroup(self._cgroup)
            shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._lock)
        if self._log is not None:
            self._log.close()
        self._supervisor = self._log = None

    def _wait_until_booted(self) -> None:
        end = time.monotonic() + self.boot_seconds
        state = "no PID 1 yet"
        while time.monotonic() < end:
            if self._supervisor is None or self._supervisor.poll() is not None:
                raise HostError(f"{self.name}: the supervisor ended\n{self.log()}")
            pid = self._read_state("pid")
            if pid and os.path.exists(f"/proc/{pid}/root/run/systemd/private"):
                left = max(0.1, end - time.monotonic())
                with contextlib.suppress(subprocess.TimeoutExpired, HostError):
                    state = self.run("systemctl", "is-system-running", "--wait", timeout=left).stdout.strip()
                if state in ("running", "degraded"):
                    self.address = self._read_state("address") or None
                    return
            time.sleep(0.01)
        raise HostError(f"{self.name}: not booted in time ({state})\n{self.log()}")

    # ---- use ----
    def log(self, lines: int = 40) -> str:
        """The last lines of the supervisor and of the console of the host."""
        if self._log is None:
            return ""
        most = 1 << 16
        descriptor = self._log.fileno()
        start = max(0, os.fstat(descriptor).st_size - most)
        return "\n".join(os.pread(descriptor, most, start).decode(errors="replace").split("\n")[-lines:])

    def _read_state(self, name: str) -> str:
        try:
            return Path(self._directory, name).read_text(errors="replace").strip()
        except OSError:
            return ""

    @property
    def pid(self) -> int:
        """The PID of the host's PID 1 on the machine."""
        alive = self._supervisor is not None and self._supervisor.poll() is None
        pid = self._read_state("pid") if alive else ""
        if not pid:
            raise HostError(f"{self.name} is not running\n{self.log()}")
        return int(pid)

    @property
    def upper_layer(self) -> str:
        """What the host has written, as a directory of the overlay. It must be read without following links."""
        if self._supervisor is None:
            raise HostError(f"{self.name} is not running")
        return f"/proc/{self._supervisor.pid}/root{self._directory}/m/upper"

    # Files go through the host's own root, never /proc/PID/root: there an absolute link (/var/run → /run) would
    # lead back to the machine's files.
    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        self.run("install", "-D", "-m", f"{mode:o}", "/dev/stdin", path, stdin=text, check=True)

    def read(self, path: str) -> str:
        return self.run("cat", path, check=True).stdout

    def shell(self, script: str, *words: str, stdin: str = "") -> str:
        """The output of a script of `sh -e`. Raises `HostError` if it fails."""
        return self.run("/bin/sh", "-ec", script, "sh", *words, check=True, stdin=stdin).stdout

    def command(self, words: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
        """The command line that runs `words` in all the host's namespaces and in its init.scope.

        The outer shell stays outside the host's PID namespace and reaps the command: killed together with it, it
        would leave a zombie inside until the machine's PID 1 reaps that.
        """
        given = {"PATH": SEARCH_PATH, "HOME": "/root", "LANG": "C.UTF-8", **(environment or {})}
        inner = ["env", "-i", "-C", "/", *(f"{key}={value}" for key, value in given.items()), *words]
        wait = 'join=$1; shift; /bin/sh -c "$join" sh "$@"; exit $?'
        join = 'echo 0 >/sys/fs/cgroup/init.scope/cgroup.procs && exec nsenter --cgroup=/proc/1/ns/cgroup -- "$@"'
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "--no-fork", "--"]
        return [*enter, "setpriv", DROPPED, "/bin/sh", "-c", wait, "sh", join, *inner]

    def popen(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(words, environment),
            text=True,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(
        self,
        *words: str,
        timeout: float = 120.0,
        check: bool = False,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        process = self.popen(*words, environment=environment)
        try:
            output, errors = process.communicate(stdin, timeout)
        except BaseException:
            _kill_group(process.pid)
            try:
                process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
        done = subprocess.CompletedProcess(words, process.returncode, output, errors)
        if check and done.returncode:
            raise HostError(f"{self.name}: {' '.join(words)}: exit {done.returncode}\n{output}\n{errors}")
        return done


def _kill_group(leader: int) -> None:
    """Sends SIGKILL to the process group of the leader, but not to the leader, which reaps."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{entry}/stat").read_text()
            if int(entry) != leader and int(status.rpartition(")")[2].split()[2]) == leader:
                os.kill(int(entry), signal.SIGKILL)


def _kill_cgroup(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path, "cgroup.kill").write_text("1")


def _remove_cgroup(path: str, wait_seconds: float = 5.0) -> None:
    """Kills all processes in the cgroup of the host, then removes it."""
    _kill_cgroup(path)
    end = time.monotonic() + wait_seconds
    while os.path.isdir(path) and time.monotonic() < end:
        for top, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(top)
        time.sleep(0.005)


# ---- the supervisor: in a mount namespace of its own it holds the overlay, boots PID 1, and tears down ----
def _put(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    Path(path).write_text(text)


def _prepare_root(mount_point: str, name: str, size: str, disk: str, lower: str) -> None:
    if disk:
        subprocess.run(["mount", "--bind", disk, mount_point], check=True)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,size={size}", "tmpfs", mount_point], check=True)
    is_known = os.path.isdir(f"{mount_point}/upper")
    for directory in ("upper", "work", "root"):
        os.makedirs(f"{mount_point}/{directory}", exist_ok=True)
    layers = f"lowerdir={lower},upperdir={mount_point}/upper,workdir={mount_point}/work"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", f"{mount_point}/root"], check=True)
    if is_known:
        return
    etc = f"{mount_point}/root/etc"
    # Hides the units that are enabled on the machine.
    for directory in ("systemd/system", *(f"rc{level}.d" for level in "0123456S")):
        shutil.rmtree(f"{etc}/{directory}", ignore_errors=True)
    os.makedirs(f"{etc}/systemd/system")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{etc}/fstab")
    _put(f"{etc}/machine-id", uuid.uuid4().hex + "\n")
    _put(f"{etc}/hostname", name + "\n")
    _put(f"{etc}/hosts", f"127.0.0.1 localhost\n127.0.1.1 {name}\n{GATEWAY} gateway\n")
    _put(f"{etc}/systemd/journald.conf.d/90-host.conf", "[Journal]\nStorage=volatile\nRuntimeMaxUse=32M\n")
    _put(f"{etc}/systemd/system.conf.d/90-host.conf", "[Manager]\nDefaultTimeoutStopSec=20s\n")
    # Read-only binds of the caller may be below /tmp.
    _put(f"{etc}/tmpfiles.d/tmp.conf", "# Nothing is cleaned.\n")  # noqa: S108  # a name below /etc


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("ip", *words), check=False, capture_output=True, text=True, env=ENVIRONMENT)


def _plug(pid: str) -> int:
    """A veth pair, sdv<N> here and eth0 in the network namespace of `pid`; the name is the lock on N."""
    for number in range(2, 255):
        name = f"sdv{number}"
        made = _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid)
        if made.returncode == 0:
            for words in (
                ("addr", "add", GATEWAY, "peer", f"198.18.0.{number}", "dev", name),
                ("link", "set", name, "up"),
            ):
                done = _ip(*words)
                if done.returncode:
                    raise HostError(f"ip {' '.join(words)}: {done.stderr}")
            return number
        if "File exists" not in made.stderr:
            raise HostError(f"veth: {made.stderr}")
    raise HostError("no free sdv<N> name")


def _supervise(
    state: str, cgroup: str, name: str, network: str, life_seconds: str, size: str, binds: str, disk: str, lower: str
) -> int:
    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    mount_point = f"{state}/m"
    child: subprocess.Popen[str] | None = None
    number = 0
    try:
        os.mkdir(cgroup)
        os.mkdir(mount_point)
        _prepare_root(mount_point, name, size, disk, lower)
        master, slave = os.openpty()
        environment = {
            **ENVIRONMENT,
            "CG": cgroup,
            "M": mount_point,
            "LAYER": LAYER,
            "NAME": name,
            "TTY": os.ttyname(slave),
            "SECOND_STAGE": SECOND_STAGE,
            "DROPPED": DROPPED,
            "SYSTEMD": SYSTEMD,
            "GATEWAY": GATEWAY,
            "BINDS": binds,
            "MASKED": " ".join(f"systemd.mask={unit}" for unit in MASKED),
        }
        spaces = ("--pid", "--fork", "--kill-child=KILL", "--mount", "--uts", "--ipc", "--net")
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "/bin/sh", "-euc", FIRST_STAGE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        if child.stdin is None or child.stdout is None:
            raise HostError("no pipes")
        pid = child.stdout.readline().strip()
        if not pid:
            raise HostError("the first stage failed")
        if network:
            number = _plug(pid)
            _put(f"{state}/address", f"198.18.0.{number}")
        child.stdin.write(f"198.18.0.{number}\n" if network else "\n")
        child.stdin.close()
        _put(f"{state}/pid.new", pid)
        os.rename(f"{state}/pid.new", f"{state}/pid")
        return _watch(child, master, time.monotonic() + float(life_seconds))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_cgroup(cgroup)
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1)
            child.kill()
            child.wait()
        _remove_cgroup(cgroup)
        if number:
            _ip("link", "del", f"sdv{number}")
        subprocess.run(["umount", "-l", mount_point], check=False, stderr=subprocess.DEVNULL)
        if not os.path.ismount(mount_point):
            shutil.rmtree(state, ignore_errors=True)


def _watch(child: subprocess.Popen[str], master: int, end: float) -> int:
    """Returns when PID 1 ends, the caller is done or gone, or the lifetime of the host is over."""
    fcntl.fcntl(master, fcntl.F_SETFL, os.O_NONBLOCK)
    poll = select.poll()
    for descriptor in (0, master, os.pidfd_open(child.pid)):
        poll.register(descriptor, select.POLLIN)
    while child.poll() is None:
        for descriptor, _ in poll.poll(max(0, int((end - time.monotonic()) * 1000)) + 1):
            if descriptor == 0:
                return 0
            if descriptor == master:
                with contextlib.suppress(OSError):
                    os.write(1, os.read(master, 65536))
        if time.monotonic() > end:
            print("the lifetime of the host is over", flush=True)
            return 124
    print(f"PID 1 ended: {child.returncode}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_supervise(*sys.argv[1:]))
