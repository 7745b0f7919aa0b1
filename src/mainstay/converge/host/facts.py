"""Facts about this host, gathered when a manifest first uses a fact."""

from __future__ import annotations

import os
from collections.abc import Callable

from mainstay.foundation import Any

# Names of distributions in `host.info` that differ from os-release.
PLATFORM_NAMES = {"rhel": "redhat", "ol": "oracle", "amzn": "amazon"}


def built_in() -> dict[str, Any]:
    system = os.uname()
    release = _os_release()
    name = release.get("ID", "linux")
    family = os_family(name, release.get("ID_LIKE", ""))
    version = release.get("VERSION_ID", "")
    hostname = system.nodename
    guest_of, role = virtualization(read_small, os.path.exists)
    return {
        "hostname": hostname.partition(".")[0],
        "fqdn": fqdn(hostname),
        "os": {"name": release.get("NAME", "Linux"), "family": family, "version": version, "id": name},
        "kernel": {"release": system.release, "arch": system.machine},
        "cpu": {"count": len(os.sched_getaffinity(0))},
        "memory": {"total_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")},
        "network": _network(),
        "virtualization": _virtualization(),
        "user": _user(),
        "host": {
            "info": {
                "hostname": hostname,
                "os": "linux",
                "platform": PLATFORM_NAMES.get(name, name),
                "platformFamily": "fedora" if name == "fedora" else family,
                "platformVersion": platform_version(name, version, read_small),
                "kernelVersion": system.release,
                "kernelArch": system.machine,
                "virtualizationSystem": guest_of,
                "virtualizationRole": role,
            }
        },
    }


def _user() -> dict[str, str]:
    """The user and group that this process runs as."""
    from mainstay.converge.host.accounts import Accounts

    accounts = Accounts()
    return {"name": accounts.user(os.geteuid()), "group": accounts.group(os.getegid())}


def custom_files(configuration: str) -> list[str]:
    """Returns the files of custom facts in `facts.d`; later files win."""
    folder = os.path.join(configuration, "facts.d")
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(folder, name) for name in names if name.endswith((".json", ".yaml", ".yml"))]


def _os_release() -> dict[str, str]:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = read_small(path)
        if text:
            pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
            return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}
    return {}


def os_family(name: str, like: str) -> str:
    words = [name, *like.split()]
    for family, members in (
        ("debian", ("debian", "ubuntu")),
        ("rhel", ("rhel", "fedora", "centos")),
        ("suse", ("suse", "opensuse", "sles")),
        ("arch", ("arch",)),
        ("alpine", ("alpine",)),
    ):
        if any(word.startswith(members) for word in words):
            return family
    return name


def fqdn(hostname: str) -> str:
    if "." in hostname:
        return hostname
    import socket

    # Local sources only: a fact must not wait for a name server.
    for line in (read_small("/etc/hosts") or "").splitlines():
        names = line.partition("#")[0].split()[1:]
        for name in names:
            if name.startswith(f"{hostname}."):
                return name
    domain = read_small("/proc/sys/kernel/domainname") or ""
    domain = domain.strip()
    return f"{hostname}.{domain}" if domain and domain != "(none)" else socket.gethostname()


def platform_version(name: str, version: str, read: Callable[[str], str | None]) -> str:
    """The version with its minor number, which os-release of some distributions lacks: Debian 12.11, not 12."""
    if name in ("debian", "raspbian"):
        written = (read("/etc/debian_version") or "").strip().partition("\n")[0]
    elif name == "alpine":
        written = (read("/etc/alpine-release") or "").strip()
    else:
        # "Rocky Linux release 9.3 (Blue Onyx)"
        _, _, after = (read("/etc/redhat-release") or "").partition(" release ")
        written = (after.split() or [""])[0]
    return written or version


def virtualization(read: Callable[[str], str | None], exists: Callable[[str], bool]) -> tuple[str, str]:
    """(system, role) as `host.info` of a related family has them; empty on plain hardware."""

    def text_of(path: str) -> str:
        return read(path) or ""

    groups = text_of("/proc/self/cgroup")
    if exists("/.dockerenv") or "docker" in groups:
        return "docker", "guest"
    if "lxc" in groups or "container=lxc" in text_of("/proc/1/environ"):
        return "lxc", "guest"
    if exists("/proc/vz"):
        return "openvz", "host" if exists("/proc/bc/0") else "guest"
    if exists("/proc/xen"):
        is_host = "control_d" in text_of("/proc/xen/capabilities")
        return "xen", "host" if is_host else "guest"
    loaded = {line.split(" ", 1)[0] for line in text_of("/proc/modules").splitlines()}
    for module, system in (("hv_utils", "hyperv"), ("vboxguest", "vbox"), ("vmw_balloon", "vmware")):
        if module in loaded:
            return system, "guest"
    processor = text_of("/proc/cpuinfo")
    if "QEMU Virtual CPU" in processor or "KVM processor" in processor:
        return "kvm", "guest"
    product = text_of("/sys/class/dmi/id/product_name")
    if "KVM" in product or ("hypervisor" in processor and "virtio_pci" in text_of("/proc/bus/pci/devices")):
        return "kvm", "guest"
    for module, system in (("kvm", "kvm"), ("vboxdrv", "vbox")):
        if module in loaded:
            return system, "host"
    return "", ""


class Interfaces(dict[str, "Any"]):
    """Network interfaces by name; a number in a look-up takes them by kernel index."""

    def item_at(self, number: int) -> Any:
        """The interface at a position; None if there are fewer."""
        return next((each for index, each in enumerate(self.values()) if index == number), None)


def _network() -> dict[str, Any]:
    import socket

    interfaces = Interfaces()
    for index, name in sorted(socket.if_nameindex()):
        interfaces[name] = {
            "name": name,
            "index": index,
            "mac": (read_small(f"/sys/class/net/{name}/address") or "").strip(),
            "mtu": int((read_small(f"/sys/class/net/{name}/mtu") or "0").strip() or 0),
            "state": (read_small(f"/sys/class/net/{name}/operstate") or "").strip(),
            "ipv4": _interface_ipv4(name),
            "ipv6": [],
        }
    for line in (read_small("/proc/net/if_inet6") or "").splitlines():
        parts = line.split()
        if len(parts) == 6 and parts[5] in interfaces:
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(parts[0]))
            interfaces[parts[5]]["ipv6"].append(address)
    return {
        "interfaces": interfaces,
        "default_ipv4": _source_address(socket.AF_INET, "192.0.2.1"),
        "default_ipv6": _source_address(socket.AF_INET6, "2001:db8::1"),
    }


def _interface_ipv4(name: str) -> str | None:
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _source_address(family: int, documentation_address: str) -> str | None:
    """Returns the source address of outgoing packets. Nothing is sent: a datagram socket only looks up the route."""
    import socket

    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((documentation_address, 9))
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return None


def _virtualization() -> str:
    container = read_small("/run/systemd/container") or ""
    if container.strip():
        return container.strip()
    product = (read_small("/sys/class/dmi/id/product_name") or "").lower()
    for mark, name in (
        ("kvm", "kvm"),
        ("vmware", "vmware"),
        ("virtualbox", "virtualbox"),
        ("virtual machine", "hyperv"),
        ("hvm", "xen"),
        ("google compute", "google"),
        ("droplet", "kvm"),
    ):
        if mark in product:
            return name
    if "hypervisor" in (read_small("/proc/cpuinfo") or ""):
        return "vm"
    return "none"


def read_small(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1024 * 1024)
    except OSError:
        return None
