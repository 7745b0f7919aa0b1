"""The user type on real account databases, with the real tools, in a mount namespace of its own."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from applying import Applied
from fork_server import PROGRAM
from isolation import traced
from mainstay.foundation.faults import DoesNotLoad
from own_accounts import databases, entry, own_accounts, userdb_user
from required_parts import need
from torture import count_of

Apply = Callable[..., Applied]
HASH = "$6$salt$" + "x" * 86
OTHER_HASH = "$6$salt$" + "y" * 86


@pytest.fixture(autouse=True)
def _accounts() -> Iterator[None]:
    with own_accounts():
        yield


def user(name: str = "app", **properties: object) -> str:
    return json.dumps({"user": [{name: properties}]})


def listed(*entries: str) -> str:
    return "\n".join(f"- {each}" for each in entries)


def field(number: int, name: str = "app", database: str = "passwd") -> str:
    line = entry(database, name)
    assert line is not None
    return line.split(":")[number]


def members(group: str) -> str:
    return field(3, group, "group")


def owner(path: str) -> tuple[int, int, str]:
    status = os.lstat(path)
    return status.st_uid, status.st_gid, f"{stat.S_IMODE(status.st_mode):o}"


def test_a_user_is_created_with_its_group_and_left_alone(apply: Apply) -> None:
    assert apply(listed(user())).outcomes == ["changed"]
    assert entry("passwd", "app") == "app:x:51000:51000::/home/app:/bin/sh"
    assert entry("group", "app") == "app:x:51000:"
    assert field(1, database="shadow") == "!"
    assert not Path("/home/app").exists()
    assert apply(listed(user())).outcomes == ["stable"]


def test_every_property_is_set_and_changed(apply: Apply) -> None:
    first = user(
        uid=1500,
        group="users",
        groups=["sudo", "www-data"],
        home="/home/elsewhere",
        manage_home=True,
        shell="/usr/sbin/nologin",
        comment="Shop, application",
        password_hash=HASH,
    )
    assert apply(listed(first)).errors == []
    assert entry("passwd", "app") == "app:x:1500:100:Shop, application:/home/elsewhere:/usr/sbin/nologin"
    assert field(1, database="shadow") == HASH
    assert (members("sudo"), members("www-data")) == ("app", "app")
    assert (entry("group", "app"), field(3, "sudo", "gshadow")) == (None, "app")
    assert apply(listed(first)).outcomes == ["stable"]
    second = user(
        uid=1600,
        group="33",
        groups=["users"],
        membership="exact",
        home="/home/new",
        manage_home=True,
        shell="/bin/bash",
        comment="",
        password_hash=OTHER_HASH,
        locked=True,
    )
    done = apply(listed(second))
    assert done.errors == []
    assert entry("passwd", "app") == "app:x:1600:33::/home/new:/bin/bash"
    assert field(1, database="shadow") == f"!{OTHER_HASH}"
    # A primary group may list its user as well.
    assert (members("sudo"), members("www-data"), members("users")) == ("", "app", "app")
    assert "`find / -xdev -uid 1500`" in done.report.events[0].warnings[0]
    assert apply(listed(second)).outcomes == ["stable"]


def test_an_existing_group_of_its_name_becomes_its_primary_group(apply: Apply) -> None:
    done = apply(listed('{"group": [{"app": {"gid": 1700}}]}', user()))
    assert done.errors == []
    assert entry("passwd", "app") == "app:x:51000:1700::/home/app:/bin/sh"


def test_a_system_user_gets_a_number_of_its_range(apply: Apply) -> None:
    apply(listed(user(system=True), user("other", system=True)))
    assert (field(2), field(2, "other")) == ("489", "488")
    assert (field(2, database="group"), field(2, "other", "group")) == ("489", "488")


def test_without_user_groups_the_default_group_is_used(apply: Apply) -> None:
    defaults = Path("/etc/login.defs")
    defaults.write_text(defaults.read_text().replace("USERGROUPS_ENAB yes", "USERGROUPS_ENAB no"))
    text = listed(user())
    assert apply(text, noop=True).outcomes == apply(text).outcomes == ["changed"]
    assert field(3) == "100"


# ---- homes ----
def test_a_home_is_created_from_the_skeleton(apply: Apply) -> None:
    assert apply(listed(user(manage_home=True))).errors == []
    assert owner("/home/app") == (51000, 51000, "755")
    assert owner("/home/app/.profile") == (51000, 51000, "644")
    assert owner("/home/app/.config/tool") == (51000, 51000, "600")
    assert owner("/home/app/link")[:2] == (51000, 51000)
    assert os.readlink("/home/app/link") == ".profile"
    assert os.listdir("/home") == ["app"]


def test_a_missing_home_of_an_existing_user_is_created(apply: Apply) -> None:
    defaults = Path("/etc/login.defs")
    defaults.write_text(defaults.read_text() + "HOME_MODE 0700\n")
    apply(listed(user()))
    done = apply(listed(user(manage_home=True)))
    assert done.outcomes == ["changed"]
    assert done.report.events[0].reason == "home /home/app does not exist"
    assert owner("/home/app") == (51000, 51000, "700")


def test_an_existing_home_is_left_alone(apply: Apply) -> None:
    Path("/home/app").mkdir(mode=0o711)
    apply(listed(user(manage_home=True)))
    assert owner("/home/app") == (0, 0, "711")
    assert os.listdir("/home/app") == []


def test_a_home_whose_parent_is_missing_fails_and_the_user_is_created(apply: Apply) -> None:
    done = apply(listed(user(home="/home/a/b", manage_home=True)))
    assert done.errors == ["parent directory /home/a does not exist"]
    assert done.report.events[0].changed is True


@pytest.mark.parametrize("kind", ["file", "dangling"])
def test_something_else_at_the_path_of_the_home_fails(kind: str, apply: Apply) -> None:
    if kind == "file":
        Path("/home/app").write_text("")
    else:
        Path("/home/app").symlink_to("/home/none")
    text = listed(user(manage_home=True))
    forecast, done = apply(text, noop=True), apply(text)
    expected = "is not a directory" if kind == "file" else "is a link to /home/none, which does not exist"
    assert forecast.errors == done.errors == [f"home /home/app {expected}"]
    assert entry("passwd", "app") is None


def test_removal_keeps_the_home_unless_it_is_managed(apply: Apply) -> None:
    apply(listed(user(manage_home=True), user("other", manage_home=True)))
    assert apply(listed(user(ensure="absent"))).outcomes == ["changed"]
    assert (entry("passwd", "app"), entry("shadow", "app"), entry("group", "app")) == (None, None, None)
    assert Path("/home/app/.profile").exists()
    assert apply(listed(user("other", ensure="absent", manage_home=True))).outcomes == ["changed"]
    assert os.listdir("/home") == ["app"]
    assert apply(listed(user("other", ensure="absent", manage_home=True))).outcomes == ["stable"]


def test_a_managed_home_that_is_gone_does_not_keep_a_user(apply: Apply) -> None:
    apply(listed(user()))
    assert apply(listed(user(ensure="absent", manage_home=True))).outcomes == ["changed"]


@pytest.mark.parametrize(
    ("home", "problem"),
    [
        ("/", "it belongs to user 0"),
        ("/usr/sbin", "it belongs to user 0"),
        ("/home/shared", "it is or contains the home of other"),
        ("/home", "it belongs to user 0"),
        ("/home/link", "it is a link"),
        ("/home/mounted", "/home/mounted/below is a mount point; nothing is removed across it"),
    ],
)
def test_a_home_that_holds_more_is_never_removed(home: str, problem: str, apply: Apply) -> None:
    Path("/home/shared").mkdir()
    Path("/home/shared/deep").mkdir()
    Path("/home/mounted/below").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/home/mounted/below"], check=True)
    Path("/home/link").symlink_to("/home/shared")
    apply(listed(user(home=home), user("other", home="/home/shared/deep")))
    for path in ("/home/shared", "/home/shared/deep", "/home/mounted"):
        os.chown(path, 51000, 51000)
    before = databases()
    text = listed(user(ensure="absent", manage_home=True))
    forecast, done = apply(text, noop=True), apply(text)
    assert (
        forecast.errors == done.errors == [f"home {home} is not removed: {problem}; remove `manage_home` to keep it"]
    )
    assert databases() == before


# ---- passwords ----
def test_a_lock_keeps_the_hash(apply: Apply) -> None:
    apply(listed(user(password_hash=HASH)))
    assert apply(listed(user(locked=True))).outcomes == ["changed"]
    assert field(1, database="shadow") == f"!{HASH}"
    assert apply(listed(user(password_hash=HASH))).outcomes == ["stable"]
    assert apply(listed(user(password_hash=OTHER_HASH))).outcomes == ["changed"]
    assert field(1, database="shadow") == f"!{OTHER_HASH}"
    assert apply(listed(user(locked=False))).outcomes == ["changed"]
    assert field(1, database="shadow") == OTHER_HASH


def test_a_password_that_passwd_locked_twice_is_unlocked(apply: Apply) -> None:
    apply(listed(user(password_hash=HASH)))
    shadow = Path("/etc/shadow")
    shadow.write_text(shadow.read_text().replace(HASH, f"!!{HASH}"))
    assert apply(listed(user(locked=False))).errors == []
    assert field(1, database="shadow") == HASH


def test_an_empty_password_is_never_unlocked(apply: Apply) -> None:
    text = listed(user(locked=False))
    for _ in range(2):
        (error,) = apply(text).errors
        assert error.startswith("user app has no password, and without a lock everyone could log in")
        apply(listed(user()))
    shadow = Path("/etc/shadow")
    shadow.write_text(shadow.read_text().replace("app:!:", "app::"))
    assert apply(text).outcomes == ["failed"]
    assert apply(listed(user(locked=True))).outcomes == ["changed"]
    assert field(1, database="shadow") == "!"


def test_the_hash_is_in_no_argument_and_no_environment(apply: Apply, root: Path) -> None:
    (root / "chpasswd").write_text(
        f'#!/bin/sh\ntr "\\0" "\\n" </proc/$$/cmdline >{root}/seen\nenv >>{root}/seen\n'
        f'cat >{root}/stdin\n/usr/sbin/chpasswd "$@" <{root}/stdin\n'
    )
    (root / "chpasswd").chmod(0o755)
    done = apply(listed(user(password_hash=HASH)), environ={"PATH": f"{root}:{os.environ['PATH']}"})
    assert done.errors == []
    assert HASH not in (root / "seen").read_text()
    assert (root / "stdin").read_text() == f"app:{HASH}\n"
    assert HASH not in json.dumps(done.as_json())


def test_a_password_outside_the_shadow_database_is_left_alone(apply: Apply) -> None:
    passwd = Path("/etc/passwd")
    passwd.write_text(passwd.read_text() + f"old:{HASH}:700:100::/home/old:/bin/sh\n")
    assert apply(listed(user("old", password_hash=HASH, locked=False))).outcomes == ["stable"]
    assert apply(listed(user("old", password_hash=OTHER_HASH))).errors == []
    assert OTHER_HASH in passwd.read_text() + Path("/etc/shadow").read_text()


# ---- groups ----
def test_minimum_keeps_other_groups_and_exact_does_not(apply: Apply) -> None:
    apply(listed(user(groups=["sudo"])))
    assert apply(listed(user(groups=["users"]))).outcomes == ["changed"]
    assert (members("sudo"), members("users")) == ("app", "app")
    assert apply(listed(user(groups=["sudo"]))).outcomes == ["stable"]
    done = apply(listed(user(groups=["sudo"], membership="exact")))
    assert done.report.events[0].reason == "user is in group users, which is not listed"
    assert (members("sudo"), members("users")) == ("app", "")
    assert apply(listed(user(groups=[], membership="exact"))).outcomes == ["changed"]
    assert members("sudo") == ""


def test_the_primary_group_may_be_listed(apply: Apply) -> None:
    text = listed(user(group="users", groups=["users", "sudo"], membership="exact"))
    assert [apply(text).outcomes, apply(text).outcomes] == [["changed"], ["stable"]]
    assert members("users") == ""
    text = listed(user(group="sudo", groups=["users"], membership="exact"))
    assert [apply(text).outcomes, apply(text).outcomes] == [["changed"], ["stable"]]
    assert members("users") == "app"


def test_a_missing_group_is_named(apply: Apply) -> None:
    text = listed(user(group="none"), user("b", groups=["sudo", "no1", "no2"]))
    forecast, done = apply(text, noop=True), apply(text)
    assert (
        forecast.errors
        == done.errors
        == [
            "group none does not exist; add a `group` resource before",
            "group no1, no2 does not exist; add a `group` resource before",
        ]
    )


# ---- refusals ----
def test_a_number_that_is_taken_is_refused(apply: Apply) -> None:
    done = apply(listed(user(uid=0), user("b", uid=1), user("root", uid=5)))
    assert done.errors == [
        "uid 0 belongs to user root; choose another number",
        "uid 1 belongs to user daemon; choose another number",
        "user root has uid 0 and keeps it",
    ]


def test_root_is_never_removed(apply: Apply) -> None:
    passwd = Path("/etc/passwd")
    passwd.write_text(passwd.read_text() + "toor:x:0:0::/root:/bin/sh\n")
    done = apply(listed(user("toor", ensure="absent", manage_home=True)))
    assert done.errors == ["user toor has uid 0; it is never removed"]
    with pytest.raises(DoesNotLoad, match="root cannot be removed"):
        apply(listed(user("root", ensure="absent")))


def test_a_user_with_processes_is_not_removed_nor_renumbered(apply: Apply) -> None:
    apply(listed(user(uid=54321, manage_home=True)))
    with subprocess.Popen(["setpriv", "--reuid", "54321", "--clear-groups", "sleep", "600"]) as process:
        while b"Uid:\t54321" not in Path(f"/proc/{process.pid}/status").read_bytes():
            pass
        text = listed(user(ensure="absent", manage_home=True))
        forecast, done = apply(text, noop=True), apply(text)
        shown = f"{process.pid} (sleep)"
        assert forecast.errors == done.errors == [f"user app has running processes; stop them before: {shown}"]
        (error,) = apply(listed(user(uid=54322))).errors
        assert error.endswith(f"stop them before: {shown}")
        assert apply(listed(user(comment="still fine"))).outcomes == ["changed"]
        process.kill()
    assert Path("/home/app").exists()
    assert apply(text).outcomes == ["changed"]


def test_a_user_of_another_source_is_not_local(apply: Apply) -> None:
    userdb_user("remote", 4711)
    for ensure in ("present", "absent"):
        assert apply(listed(user("remote", ensure=ensure))).errors == [
            "user remote is not local (systemd); manage it there"
        ]
    assert apply(listed(user(uid=4711))).errors == ["uid 4711 belongs to user remote; choose another number"]


# ---- dry runs ----
def file(path: str, **properties: object) -> str:
    return json.dumps({"file": [{path: {"ensure": "present", "mode": "0640", **properties}}]})


def check_forecast(apply: Apply, text: str) -> Applied:
    """A dry run changes nothing and forecasts the run; the second run is stable."""
    before = databases()
    forecast = apply(text, noop=True)
    assert databases() == before
    done = apply(text)
    for expected, found in zip(forecast.report.events, done.report.events, strict=True):
        for key in ("outcome", "changed", "reason", "errors", "warnings"):
            assert getattr(expected, key) == getattr(found, key), (expected.resource.id, key)
    return done


def test_a_dry_run_carries_users_forward(apply: Apply, root: Path) -> None:
    for name, uid, gid in (("kept", 51000, 51000), ("late", 51001, 100)):
        (root / name).write_text("")
        (root / name).chmod(0o640)
        os.chown(root / name, uid, gid)
    done = check_forecast(
        apply,
        listed(
            user(manage_home=True),
            user("late", group="users"),
            file("/home/app/notes", owner="app", group="app"),
            file("/home/app/.profile", owner="app", group="app", mode="0644", content="# profile\n"),
            file("/home/app/.config/tool", owner="app", group="app", mode="0644"),
            file(f"{root}/kept", owner="app", group="app"),
            file(f"{root}/late", owner="late", group="users"),
            user("third", uid=51001),
            user("fourth", groups=["app", "none"]),
            user("fifth", groups=["app"]),
        ),
    )
    assert done.outcomes == [*["changed"] * 3, "stable", "changed", *["stable"] * 2, "failed", "failed", "changed"]
    assert members("app") == "fifth"


def test_a_dry_run_knows_a_removed_user(apply: Apply, root: Path) -> None:
    apply(listed(user(manage_home=True, groups=["sudo"]), user("other", groups=["app"])))
    done = check_forecast(
        apply,
        listed(
            user(ensure="absent", manage_home=True),
            file("/home/app/more", owner="root", group="root"),
            file(f"{root}/gone", owner="app", group="root"),
            file(f"{root}/stays", owner="root", group="app"),
            user("next", uid=51000, group="app"),
            user("last", uid=51000),
        ),
    )
    assert done.outcomes == ["changed", "failed", "failed", "changed", "changed", "failed"]


def test_a_dry_run_forecasts_files_that_usermod_gives_away(apply: Apply) -> None:
    apply(listed(user(manage_home=True), user("plain", home="/home/foreign")))
    Path("/home/app/root").write_text("")
    Path("/home/foreign").mkdir()
    done = check_forecast(
        apply,
        listed(
            user(uid=1500, group="users"),
            file("/home/app/.profile", owner="app", group="users", mode="0644"),
            file("/home/app/.config/tool", owner="1500", group="users", mode="0600"),
            file("/home/app/root", owner="root", group="root", mode="0644"),
            json.dumps(
                {"file": [{"/home/app": {"ensure": "directory", "owner": "app", "group": "users", "mode": "0755"}}]}
            ),
            user("plain", uid=1600),
            json.dumps(
                {
                    "file": [
                        {"/home/foreign": {"ensure": "directory", "owner": "root", "group": "root", "mode": "0755"}}
                    ]
                }
            ),
        ),
    )
    assert done.outcomes == ["changed", "stable", "stable", "stable", "stable", "changed", "stable"]


def test_messages_of_a_dry_run(apply: Apply) -> None:
    apply(listed(user(), user("b"), user("c")))
    text = listed(
        user("new", manage_home=True),
        user("plain"),
        user(comment="x", password_hash=HASH, manage_home=True),
        user("b", ensure="absent"),
        user("c", ensure="absent", manage_home=True),
    )
    assert apply(text, noop=True).messages == [
        "Would have created the user and its home",
        "Would have created the user",
        "Would have changed the user, would have set the password, would have created the home",
        "Would have removed the user",
        "Would have removed the user and its home",
    ]


def test_a_changed_user_is_a_trigger(apply: Apply, root: Path) -> None:
    text = listed(
        user(),
        json.dumps(
            {"exec": [{"go": {"command": f"touch {root}/x", "refresh_only": True, "subscribe": ["user#app"]}}]}
        ),
    )
    assert apply(text, noop=True).outcomes == apply(text).outcomes == ["changed", "refreshed"]
    assert apply(text).outcomes == ["stable", "stable"]


# ---- size ----
def test_a_thousand_stable_users_start_no_process_and_read_each_database_once(root: Path) -> None:
    numbers = range(1000)
    for name, line in (
        ("passwd", "u{0}:x:{1}:100::/home/u{0}:/bin/sh\n"),
        ("shadow", f"u{{0}}:{HASH}:19000::::::\n"),
    ):
        with open(f"/etc/{name}", "a") as file:
            file.write("".join(line.format(number, 2000 + number) for number in numbers))
    group = Path("/etc/group")
    group.write_text(group.read_text().replace("sudo:x:27:", f"sudo:x:27:{','.join(f'u{each}' for each in numbers)}"))
    gshadow = Path("/etc/gshadow")
    gshadow.write_text(gshadow.read_text().replace("sudo:*::", f"sudo:*::{','.join(f'u{each}' for each in numbers)}"))
    names = [{f"u{each}": {"uid": 2000 + each, "groups": ["sudo"], "password_hash": HASH}} for each in numbers]
    manifest = root / "manifest.yaml"
    manifest.write_text(json.dumps([{"user": names}, {"group": [{"sudo": {"gid": 27}}]}]))
    words = [sys.executable, str(PROGRAM), "apply", str(manifest), "--detailed-exitcodes"]
    lines = traced("execve,openat,clone,vfork,fork", *words)
    for path in ("/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow"):
        assert sum(f'"{path}"' in line for line in lines) == 1, path
    assert sum("execve(" in line for line in lines) == 1
    assert not any("fork(" in line or "clone(" in line for line in lines)


# ---- hostile users ----
def test_a_home_is_not_created_through_a_link_of_another_user(apply: Apply) -> None:
    Path("/home/mallory").mkdir()
    Path("/home/outside").mkdir()
    Path("/home/mallory/way").symlink_to("/home/outside")
    os.chown("/home/mallory", 65534, 65534)
    os.lchown("/home/mallory/way", 65534, 65534)
    for home in ("/home/mallory/way/app", "/home/mallory/way"):
        text = listed(user(home=home, manage_home=True))
        forecast, done = apply(text, noop=True), apply(text)
        assert forecast.errors == done.errors
        assert "is not followed, because other users may change /home/mallory" in done.errors[0]
    assert os.listdir("/home/outside") == []


def test_a_home_in_the_directory_of_another_user_shows_it_nothing(apply: Apply) -> None:
    Path("/home/mallory").mkdir()
    os.chown("/home/mallory", 65534, 65534)
    subprocess.run(["setfacl", "-d", "-m", "u:65534:rwx", "/home/mallory"], check=False)
    assert apply(listed(user(home="/home/mallory/app", manage_home=True))).errors == []
    assert owner("/home/mallory/app") == (51000, 51000, "755")
    assert "system.posix_acl_access" not in os.listxattr("/home/mallory/app")
    assert "system.posix_acl_default" not in os.listxattr("/home/mallory/app")


def test_a_home_is_removed_without_following_its_links(apply: Apply) -> None:
    apply(listed(user(manage_home=True)))
    Path("/home/outside").mkdir()
    Path("/home/outside/kept").write_text("")
    Path("/home/app/tree").symlink_to("/home/outside")
    Path("/home/app/file").symlink_to("/home/outside/kept")
    assert apply(listed(user(ensure="absent", manage_home=True))).errors == []
    assert os.listdir("/home/outside") == ["kept"]


# Swaps a directory of a hostile user with a link to one of root, as fast as it can.
SWAP = """
import os
os.chdir("/home/mallory")
print(flush=True)
while True:
    os.rename("way", "kept")
    os.rename("link", "way")
    os.rename("way", "link")
    os.rename("kept", "way")
"""


@pytest.mark.parametrize("ensure", ["present", "absent"])
def test_links_that_another_user_swaps_lead_nowhere(ensure: str, apply: Apply) -> None:
    for path in ("/home/mallory", "/home/mallory/way", "/home/outside"):
        Path(path).mkdir()
    if ensure == "absent":
        # A directory that would be removed if the link were followed.
        Path("/home/outside/app").mkdir()
        Path("/home/outside/app/kept").write_text("")
        os.chown("/home/outside/app", 51000, 51000)
    Path("/home/mallory/link").symlink_to("/home/outside")
    os.chown("/home/mallory", 65534, 65534)
    os.chown("/home/mallory/way", 65534, 65534)
    os.lchown("/home/mallory/link", 65534, 65534)
    before = sorted(str(path) for path in Path("/home/outside").rglob("*"))
    outcomes = set()
    need(present=os.access("/usr/bin/python3", os.X_OK), what="a Python that every user can run")
    swap = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c", SWAP]
    with subprocess.Popen(swap, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(count_of(400)):
            present = listed(user(uid=51000, home="/home/mallory/way/app", manage_home=True))
            outcomes.update(apply(present).outcomes)
            if ensure == "absent":
                outcomes.update(apply(listed(user(ensure="absent", manage_home=True))).outcomes)
            assert sorted(str(path) for path in Path("/home/outside").rglob("*")) == before
        assert process.poll() is None, "the links were not swapped all the time"
        process.kill()
    assert "failed" in outcomes, "no run met a link"
    assert outcomes <= {"changed", "stable", "failed"}


# ---- kills ----
def test_two_runs_at_once_choose_different_numbers(root: Path) -> None:
    runs = []
    for name in ("left", "right"):
        users = "".join(f"    - {name}{number}:\n" for number in range(6))
        (root / f"{name}.yaml").write_text(f"- user:\n{users}")
        words = [str(Path(sys.executable).with_name("mainstay")), "apply", f"{name}.yaml"]
        runs.append(subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True))
    for process in runs:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output


def test_a_tool_that_was_killed_between_two_databases_is_repaired(apply: Apply) -> None:
    apply(listed(user(groups=["sudo"])))
    shadow, gshadow = Path("/etc/shadow"), Path("/etc/gshadow")
    shadow.write_text("".join(line for line in shadow.read_text().splitlines(True) if not line.startswith("app:")))
    gshadow.write_text(gshadow.read_text().replace("sudo:*::app", "sudo:*::"))
    text = listed(user(groups=["sudo"], password_hash=HASH))
    assert apply(text, noop=True).outcomes == apply(text).outcomes == ["changed"]
    assert (field(1, database="shadow"), field(3, "sudo", "gshadow")) == (HASH, "app")
    shadow.write_text("".join(line for line in shadow.read_text().splitlines(True) if not line.startswith("app:")))
    done = apply(listed(user()))
    assert done.report.events[0].reason == "user has no entry in /etc/shadow"
    assert field(1, database="shadow") == "!"


# Kills its own process before the given call of `os.rename`, `os.mkdir` or a tool.
KILLED = """
import os, signal, subprocess, sys
left = int(sys.argv.pop(1))
def counted(act):
    def call(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*arguments, **options)
    return call
for name in ("rename", "mkdir", "symlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
subprocess.Popen = counted(subprocess.Popen)
from mainstay.cli.main import program
program()
"""
STEPS = 40


@pytest.mark.parametrize("ensure", ["present", "absent"])
def test_a_run_that_is_killed_at_any_step_is_completed_by_the_next(ensure: str, apply: Apply, root: Path) -> None:
    present = listed(user(manage_home=True, groups=["sudo"], password_hash=HASH))
    absent = listed(user(ensure="absent", manage_home=True))
    wanted = present if ensure == "present" else absent
    manifest = root.parent / "manifest.yaml"
    for step in range(1, STEPS):
        apply(absent if ensure == "present" else present)
        manifest.write_text(wanted)
        done = subprocess.run([sys.executable, "-c", KILLED, str(step), "apply", str(manifest)], capture_output=True)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        if Path("/home/app").exists() and ensure == "present":
            assert sorted(os.listdir("/home/app")) == [".config", ".profile", "link"]
        finished = apply(wanted)
        assert finished.errors == []
        assert apply(wanted).outcomes == ["stable"]
        # Nothing hidden is left.
        assert os.listdir("/home") == (["app"] if ensure == "present" else [])
        assert (entry("passwd", "app") is None) == (ensure == "absent")
    else:
        pytest.fail("the run has more steps than the test kills")
    assert step > 4
