"""What other tools call the types, keys and states of a manifest, with what to write instead. Loaded with a fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mainstay.foundation.suggestions import closest, did_you_mean
from mainstay.foundation.text import shorten

CONTROL = "use `control: {if: …}`"
REPEAT = "use `for_each`; lookup('each.value') is the item"
PATH_IS_NAME = "the name of the resource is the path"

TYPES = {
    **dict.fromkeys(("copy", "directory", "link", "symlink"), "use `file`"),
    "template": "use `file` with content: \"{{ template('FILE') }}\"",
    **dict.fromkeys(("lineinfile", "blockinfile", "file_line", "replace", "append"), "use `line`"),
    **dict.fromkeys(("unarchive", "get_url", "remote_file", "download"), "use `archive`"),
    **dict.fromkeys(
        ("include", "include_tasks", "import_tasks", "import_playbook", "include_role", "import_role", "roles"),
        "use `apply`",
    ),
    **dict.fromkeys(("command", "cmd", "run", "script"), "use `exec`"),
    "shell": "use `exec` with `provider: shell`",
    **dict.fromkeys(("systemd", "systemd_service", "systemd_unit"), "use `service`"),
    **dict.fromkeys(("apt", "apt_package", "dnf", "yum"), "use `package`"),
    "cron": "use `file` below /etc/cron.d, or a timer unit",
    "hosts": "a manifest has no plays; its resources are for the host that applies it",
}
PLAYBOOK = {"hosts", "tasks", "roles", "become", "vars"}
KEYS = {
    "notify": "let the other resource `subscribe` to this one",
    "before": "let the other resource `require` this one",
    "depends_on": "use `require: [type#name]`",
    "when": CONTROL,
    "if": CONTROL,
    "unless": "use `control: {unless: …}`",
    **dict.fromkeys(("loop", "with_items", "with_dict", "with_list", "foreach"), REPEAT),
    "register": "later resources read it with result('type#name')",
    "version": "write the version of a package as its `ensure`",
    "state": "write the desired state as `ensure`",
    "become": "mainstay runs as the user that starts it",
    "user": "mainstay runs commands as the user that starts it",
    "delay": "use `try_sleep`",
    "ignore_errors": "a run continues after a failed resource, unless `fail_on_error: true`",
}
KEYS_OF_TYPE = {
    "file": {
        "dest": PATH_IS_NAME,
        "path": PATH_IS_NAME,
        "template": "use content: \"{{ template('FILE') }}\"",
        "user": "use `owner`",
    },
    "exec": {
        "chdir": "use `cwd`",
        "shell": "use `provider: shell`",
        "removes": "use `onlyif: test -e PATH`",
    },
    "line": {
        "regexp": "use `match`",
        "regex": "use `match`",
        "insertafter": "use `after`; without it a missing line is added at the end",
        "insertbefore": "use `before`",
        "marker": "use `comment` for the sign before the markers",
        "dest": "use `path`",
        "file": "use `path`",
        "create": "create the file with a `file` resource without content, before this one",
    },
    "archive": {
        "src": "use `url`, also for a local path",
        "source": "use `url`, also for a local path",
        "dest": "the name is the path of the archive; `extract_parent` is where it is unpacked",
        "extract": "use `extract_parent`",
        "extract_path": "use `extract_parent`",
        "checksum_type": "`checksum` is SHA-256",
        "user": "use `owner`",
    },
    "user": {
        "gid": "use `group`, with a name or a number",
        "append": "`groups` adds to the groups of the user; `membership: exact` also removes others",
        "password": "use `password_hash`; `openssl passwd -6` prints it",
        "create_home": "use `manage_home`",
        "createhome": "use `manage_home`",
        "move_home": "a home is not moved; use an `exec`",
        "remove": "use `manage_home: true` with `ensure: absent`",
        "password_lock": "use `locked`",
    },
    "group": {
        "members": "list the group in `groups` of each user",
        "users": "list the group in `groups` of each user",
    },
    "apply": {
        "vars": "use `data`",
        "file": "use `manifest`",
        "path": "use `manifest`",
    },
}
TOP_KEYS = {
    "vars": "use `data`",
    "tasks": "use `resources`",
    "handlers": "use an `exec` or a `service` with `subscribe`",
    "hosts": TYPES["hosts"],
}
ENSURES = {
    "present": ("installed", "file", "created", "exists", "touch"),
    "directory": ("dir", "folder"),
    "link": ("symlink", "hard"),
    "absent": ("removed", "uninstalled", "purged", "deleted", "missing"),
    "latest": ("newest", "upgraded"),
    "running": ("started", "active", "up", "restarted", "reloaded"),
    "stopped": ("inactive", "down"),
}


def advice_on_type(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown type."""
    if name in TYPES:
        return f"; {TYPES[name]}"
    return f"{did_you_mean(name, known)}; known types: {', '.join(known)}"


def advice_on_key(key: str, type_name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown key of a resource."""
    own = KEYS_OF_TYPE.get(type_name, {}).get(key)
    if own is not None:
        return f"; {own}"
    return f"; {KEYS[key]}" if key in KEYS else did_you_mean(key, known)


def advice_on_top_key(key: str, known: Iterable[str], types: Iterable[str]) -> str:
    """The end of a message about an unknown key of a manifest."""
    if key in types:
        return f"; it is a resource type: write `- {key}:` below `resources`"
    return f"; {TOP_KEYS[key]}" if key in TOP_KEYS else did_you_mean(key, known)


def meant_ensure(written: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown `ensure`."""
    for state, names in ENSURES.items():
        if state in known and written in names:
            return f" (did you mean {state!r}?)"
    close = closest(written, known) if len(known) > 1 else None
    return f" (did you mean {close!r}?)" if close is not None else ""


def several_types(keys: Iterable[str]) -> str:
    """What is wrong with an entry of the resource list that has several keys."""
    if "hosts" in keys and PLAYBOOK.issuperset(keys):
        return (
            "this is a play of an Ansible playbook; a manifest lists resources, such as `- package:`, for the host that"
            " applies it: docs/guide/hosts/coming-from.md translates tasks"
        )
    keys = [shorten(key, 20) for key in keys]
    return f"one entry names one type, this one has {len(keys)} keys: {', '.join(keys)}; begin each with its own `-`"
