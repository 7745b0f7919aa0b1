"""Service types: schema, lifecycle, likely mistakes, versions and their services, and a check of properties."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain.lifecycle.schema import Action, Lifecycle
from mainstay.control.domain.lifecycle.state_kind import kind_of_state
from mainstay.control.domain.properties.json_schema import export_json_schema
from mainstay.control.operations import service_types as operations
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import service_types as store
from mainstay.control.store.engine.paging import owned_by
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow, TypeUse
from mainstay.control.web.contract import ApiRefusal, NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.drawings.lifecycle import draw_lifecycle
from mainstay.control.web.noun_pages import (
    NounField,
    NounForm,
    NounPages,
    Row,
    TableColumn,
    change_pages,
    may,
    noun_pages,
    read_document,
)
from mainstay.control.web.views.schema_rows import schema_rows, schema_rules

API = "/api/v1/service-types"
MOST_VERSIONS = 50
CRUMBS = (("/service-types", "Service types"),)


async def _complete(call: PageCall, rows: list[Any]) -> list[Any]:
    async with call.reading() as work:
        counts = await store.count_by_type(work.tx, [row["id"] for row in rows], _own_services(work))
    return [{**row, "services": counts[row["id"]]} for row in rows]


def _count_words(number: int) -> str:
    return f"{number:,}{'+' if number == store.MOST_COUNTED else ''}"


def _own_services(work: UnitOfWork) -> Sequence[Any]:
    return owned_by(work.relation("service", "read"), work.required_caller)


async def _show(call: PageCall) -> PageAnswer:
    return PageAnswer("service_type.html", await _read(call))


async def _read(call: PageCall) -> dict[str, Any]:
    async with call.reading() as work:
        row = await work.find(SERVICE_TYPES, call.path["id"])
        definition = work.tools.definitions.of_service_type(row)
        used = await store.count_services(work.tx, row.id, _own_services(work))
        versions = await store.bundle_versions(work.tx, row.id, MOST_VERSIONS)
        # Findings are for the authors of the type.
        findings = operations.report(work, row).findings if call.caller.role is Role.ADMIN else ()
    sees_all = call.caller.role is Role.ADMIN
    shown = _versions(row, versions, used, sees_all=sees_all)
    schema = definition.properties
    return {
        "service_type": row,
        "version": next((each["version"] for each in shown if each["is_current"]), None),
        "services": sum(each.services for each in used),
        "most_counted": store.MOST_COUNTED,
        "states": _by_state(definition.lifecycle, used),
        "versions": shown,
        "drawing": draw_lifecycle(definition.lifecycle, f"Lifecycle of {row.name}"),
        "actions": [_action_words(each) for each in definition.lifecycle.actions.values()],
        "is_built_in": definition.lifecycle.source is None,
        "findings": findings,
        "rows": schema_rows(schema),
        "is_free_form": schema.members is None,
        "rules": schema_rules(schema),
        "json_schema": msgspec.json.format(
            msgspec.json.encode(export_json_schema(schema, row.name)), indent=2
        ).decode(),
        "tried": "{\n}",
        "verdict": None,
        "unreadable": "",
        "may_write": may(call, "service_type"),
        "may_order": may(call, "service", "order"),
    }


def _by_state(lifecycle: Lifecycle, used: Sequence[TypeUse]) -> list[tuple[str, str, int]]:
    """(kind, state, number): states of the lifecycle in their order, then others."""
    counts: dict[str, int] = dict.fromkeys(lifecycle.states, 0)
    for each in used:
        counts[each.status] = counts.get(each.status, 0) + each.services
    return [(kind_of_state(lifecycle, state), state, number) for state, number in counts.items() if number]


def _versions(
    row: ServiceTypeRow, versions: Sequence[store.BundleVersion], used: Sequence[TypeUse], *, sees_all: bool
) -> list[dict[str, Any]]:
    """For participants: the current version, and those of their services."""
    counts: dict[str, int] = {}
    for each in used:
        if each.blueprint_digest is not None:
            counts[each.blueprint_digest] = counts.get(each.blueprint_digest, 0) + each.services
    return [
        {
            "digest": each.digest,
            "version": each.version,
            "created_at": each.created_at,
            "is_current": each.digest == row.blueprint_digest,
            "services": counts.get(each.digest, 0),
        }
        for each in versions
        if sees_all or each.digest in counts or each.digest == row.blueprint_digest
    ]


def _action_words(action: Action) -> dict[str, Any]:
    by_target: dict[str, list[str]] = {}
    for origin, to in action.successes.items():
        by_target.setdefault("stays" if to == origin else to, []).append(origin)
    succeeds = [
        f"stays in {', '.join(origins)}" if to == "stays" else f"{', '.join(origins)} → {to}"
        for to, origins in by_target.items()
    ]
    errors = dict.fromkeys(
        each.to if each.pattern is None else f"{each.to} on {each.pattern}"
        for each in action.transitions
        if each.on_error
    )
    return {
        "name": action.name,
        "succeeds": "; ".join(succeeds),
        "fails": "; ".join(errors) or "stays",
        "timeout": action.timeout_seconds,
        "attempts": action.max_attempts,
        "takes": "properties" if action.takes_properties else "",
    }


async def _try(call: PageCall) -> PageAnswer:
    values = await _read(call)
    text = call.posted("properties")
    values["tried"] = text
    try:
        # In a thread: reading a large document would block the event loop.
        tried = await asyncio.to_thread(read_document, text or "{}")
        values["verdict"] = await call.api("POST", f"{API}/{call.path['id']}/validate", {"properties": tried})
    except ValueError as error:
        values["unreadable"] = str(error)
    except ApiRefusal as refusal:
        if refusal.status != 400:
            raise
        values["unreadable"] = "; ".join(message for _, message in refusal.faults) or str(refusal)
    return PageAnswer("service_type.html", values)


NAME = NounField("name", "Name", required=True)
SCHEMA = NounField(
    "propertySchema",
    "Property schema",
    "document",
    "JSON or YAML. Without it every property is allowed; with {} none is.",
    lines=16,
)
LIFECYCLE = NounField(
    "lifecycleSchema",
    "Lifecycle schema",
    "document",
    "JSON or YAML. Without it the built-in lifecycle applies.",
    lines=16,
)
FORCE = NounField(
    "force",
    "Change it even if living services do not fit",
    "flag",
    "Seals values that become secret and deletes secrets that become plain. A removed state is refused anyway.",
)


async def _new_fields(_call: PageCall, _row: Row | None) -> list[NounField]:
    return [NAME, SCHEMA, LIFECYCLE]


async def _change_form(call: PageCall) -> tuple[Row, NounForm]:
    row = await call.api("GET", f"{API}/{call.path['id']}")
    page = f"/service-types/{row['id']}"
    form = NounForm(
        f"Change {row['name']}",
        "Save",
        [NAME, SCHEMA, LIFECYCLE],
        [*CRUMBS, (page, row["name"])],
        "Refused while a living service would not fit. A push of its blueprint replaces both schemas.",
        delete_href=f"{page}/delete",
        options=[FORCE],
    )
    return row, form


def _changed(_call: PageCall, row: Row) -> PageAnswer:
    sealed, deleted = row.get("sealedSecrets"), row.get("deletedSecrets")
    notice = f"Service type {row['name']} is saved"
    notice += f"; {sealed} values are sealed" if sealed else ""
    notice += f"; {deleted} secrets are deleted" if deleted else ""
    return PageAnswer(redirect=f"/service-types/{row['id']}", notice=notice)


def _effects(row: Row) -> list[str]:
    return [
        f"{row['name']} is deleted, with its services that have ended.",
        "While a service of it lives, or an agent type lists it, this is refused.",
        "Its blueprints stay.",
    ]


_NOUN = NounPages(
    noun="service_type",
    word="service type",
    plural="service types",
    path="/service-types",
    api=API,
    explanation="What can be ordered: the properties of an order and the states of a service.",
    columns=(
        TableColumn("Name", lambda row: row["name"]),
        TableColumn("Services", lambda row: _count_words(row["services"]), style="num tight"),
        TableColumn("Changed", lambda row: row["updatedAt"], "time", "c-narrow-hide"),
    ),
    fields=_new_fields,
    effects=_effects,
    navigation=NavigationEntry("Service types", "i-type", 1, "Catalogue"),
    topics="service_type service",
    detail=True,
    complete=_complete,
)
PAGES = (
    *(page for page in noun_pages(_NOUN) if not page.path.endswith("/edit")),
    WebPage(method="GET", path="/service-types/{id}", act=_show, access=("service_type", "read")),
    WebPage(method="GET", path="/service-types/{id}/validate", act=_show, access=("service_type", "read")),
    WebPage(
        method="POST",
        path="/service-types/{id}/validate",
        act=_try,
        access=("service_type", "read"),
        only_reads=True,
    ),
    *change_pages("/service-types/{id}/edit", ("service_type", "write"), _change_form, API, _changed),
)
