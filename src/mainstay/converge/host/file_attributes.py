"""Owner, mode, access list and other attributes of files that are changed or replaced."""

from __future__ import annotations

import errno
import os
import stat as modes

from mainstay.converge.failures import Failure
from mainstay.converge.host.file_reading import READ_FLAGS
from mainstay.converge.host.parents import ACCESS_ACL, DEFAULT_ACL, ENTRY_FLAGS, Place
from mainstay.foundation import Any

PRIVILEGED_ATTRIBUTES = ("security.selinux", "security.SMACK64", ACCESS_ACL)
ACL_GROUP, ACL_MASK, ACL_OTHERS = 0x04, 0x10, 0x20


def open_for_attributes(place: Place, name: str) -> tuple[int, int | str]:
    """Returns a descriptor of an entry, and what calls for attributes take: a file may not be readable."""
    try:
        descriptor = os.open(name, READ_FLAGS, dir_fd=place.handle)
    except PermissionError:
        descriptor = os.open(name, ENTRY_FLAGS, dir_fd=place.handle)
        return descriptor, f"/proc/self/fd/{descriptor}"
    return descriptor, descriptor


def keep_attributes(place: Place, name: str, descriptor: int, own_uids: tuple[int, ...]) -> None:
    """Copies user attributes, security label and access list of a replaced file.

    The list of a stranger is not kept: with it, a user could read what replaces its file.
    """
    try:
        old, target = open_for_attributes(place, name)
    except OSError:
        return
    try:
        is_own = os.fstat(old).st_uid in own_uids
        for attribute in os.listxattr(target):
            if attribute.startswith("user.") or (is_own and attribute in PRIVILEGED_ATTRIBUTES):
                _copy_attribute(attribute, target, descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.EACCES):
            raise
    finally:
        os.close(old)


def _copy_attribute(name: str, old: int | str, descriptor: int) -> None:
    try:
        value = os.getxattr(old, name)
        os.setxattr(descriptor, name, owner_only_acl(value) if name == ACCESS_ACL else value)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENODATA):
            raise


def owner_only_acl(value: bytes) -> bytes:
    """Returns an access list that grants access only to the owner, until the mode is set.

    The format is a version of four bytes, then entries of eight: tag and permissions of two bytes each, and an id.
    """
    entries = bytearray(value)
    has_mask = any(entries[start] == ACL_MASK for start in range(4, len(entries), 8))
    for start in range(4, len(entries), 8):
        if entries[start] in (ACL_MASK, ACL_OTHERS) or (entries[start] == ACL_GROUP and not has_mask):
            entries[start + 2] = 0
    return bytes(entries)


def drop_access_lists(target: int | str) -> None:
    for attribute in (ACCESS_ACL, DEFAULT_ACL):
        try:
            os.removexattr(target, attribute)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOTSUP):
                raise


def refuse_hard_links(path: str, found: Any, *, is_shared: bool) -> None:
    """Raises `Failure` for a file that another user may have linked here to have it changed."""
    if is_shared and found.st_nlink > 1 and not modes.S_ISDIR(found.st_mode):
        raise Failure(
            f"{path} has {found.st_nlink} hard links and other users may create files in its directory; it is not"
            " changed in place, because the file may belong elsewhere: remove it before, or remove the other links"
        )
