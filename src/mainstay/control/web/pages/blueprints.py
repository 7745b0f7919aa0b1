"""Blueprints: the versions that were pushed, and the files of a bundle. For admins: manifests are the provider's."""

from __future__ import annotations

import asyncio
from typing import Any

from mainstay.control.operations import blueprints as operations
from mainstay.control.operations.machinery.bundles import open_bundle
from mainstay.control.web.contract import ApiRefusal, NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.noun_pages import Confirmation, ConfirmedRequest, confirmed_pages, may, names_of

API = "/api/v1/blueprints"
PAGE_SIZE = "50"
SIGNATURE = "blueprint.sig"
# Characters of a file that are shown.
MAX_SHOWN = 20_000
MOST_FILES = 200


async def _show(call: PageCall) -> PageAnswer:
    """The list; with the digest of a bundle, its files."""
    digest = call.asked("digest")
    return await (_show_files(call, digest) if digest else _list(call))


async def _list(call: PageCall) -> PageAnswer:
    name, after = call.asked("name"), call.asked("after")
    query = [("name", name), ("after", after), ("sort", "-createdAt"), ("pageSize", PAGE_SIZE)]
    page = await call.api("GET", API, query=query)
    type_ids = [each.get("serviceTypeId") for each in page["items"]]
    values = {
        "versions": page["items"],
        "types": await names_of(call, "/api/v1/service-types", type_ids),
        "older": page.get("next"),
        "name": name,
        "after": after,
    }
    return PageAnswer("blueprints.html", values)


async def _show_files(call: PageCall, digest: str) -> PageAnswer:
    async with call.reading() as work:
        content = await operations.fetch(work, digest)
    found = await call.api("GET", API, query=[("digest", digest)])
    # In a thread: unpacking would block the event loop.
    files = await asyncio.to_thread(_read_files, content)
    values = {
        "digest": digest,
        "version": found["items"][0] if found["items"] else None,
        "size": len(content),
        "files": files[:MOST_FILES],
        "file_count": len(files),
        "is_signed": any(each["path"] == SIGNATURE for each in files),
        "may_delete": may(call, "blueprint") and not (found["items"] and found["items"][0]["isCurrent"]),
    }
    return PageAnswer("blueprint_files.html", values)


def _read_files(content: bytes) -> list[dict[str, Any]]:
    files = []
    for path, data in sorted(open_bundle(content).items()):
        is_text = b"\0" not in data
        text = data[: MAX_SHOWN * 4].decode(errors="replace")[:MAX_SHOWN] if is_text else ""
        files.append({"path": path, "size": len(data), "text": text, "is_whole": len(text.encode()) == len(data)})
    return files


async def _confirm_deletion(call: PageCall) -> tuple[Confirmation, ConfirmedRequest]:
    digest = call.path["digest"]
    found = await call.api("GET", API, query=[("digest", digest)])
    if not found["items"]:
        raise ApiRefusal(404, {"error": "there is no version with this digest", "code": "not_found"})
    version = found["items"][0]
    name = f"{version['name']} {version['version']}"
    effects = [f"Blueprint {name} can no longer be chosen or downloaded.", "Nothing changes on hosts."]
    crumbs = [("/blueprints", "Blueprints"), (f"/blueprints?digest={digest}", name)]
    request = ConfirmedRequest("DELETE", f"{API}/{digest}", "/blueprints", f"Blueprint {name} is deleted")
    return Confirmation(f"Delete {name}", "Delete the version", effects, crumbs), request


PAGES = (
    WebPage(
        method="GET",
        path="/blueprints",
        act=_show,
        access=("blueprint", "list"),
        navigation=NavigationEntry("Blueprints", "i-copy", 3, "Catalogue", "admin"),
    ),
    *confirmed_pages("/blueprints/{digest}/delete", ("blueprint", "write"), _confirm_deletion),
)
