"""Change a service: update its properties, or run an action of its lifecycle, with the plan before anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from mainstay.control.access import Role
from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.service_types import ServiceTypeDefinition
from mainstay.control.operations.machinery.job_chains import definition_of
from mainstay.control.operations.machinery.views import ServiceView, show_service
from mainstay.control.store.services import SERVICES
from mainstay.control.web.action_addresses import action_address, action_in
from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall, WebPage
from mainstay.control.web.forms.choices import FormChoices
from mainstay.control.web.forms.fields import ControlKind, build_form
from mainstay.control.web.forms.form_state import FormEntries, FormScope, add_row, initial_entries, remove_row
from mainstay.control.web.forms.posted import PostedForm
from mainstay.control.web.order_choices import read_form, read_offers, read_references
from mainstay.control.web.order_fields import order_field, place_faults, with_faults
from mainstay.control.web.order_pages import FormPage, PlanPage, service_facts, untyped_secrets
from mainstay.control.web.planned_requests import OrderForecast, PlannedRequest, dry_run, execute, forecast
from mainstay.control.web.views.plans import PlannedOrder

ACCESS = ("service", "order")
UPDATE, DELETE = "update", "delete"
FORCED = "the agent is not asked: the service ends at once, and the agent owes the clean-up of its host"


@dataclass(frozen=True, slots=True)
class ServiceAction:
    """An action of one service. `name` and `version` are as posted; a form that was not posted has those stored."""

    service: ServiceView
    definition: ServiceTypeDefinition
    action: str
    name: str
    version: str
    force: bool = False

    @property
    def url(self) -> str:
        return action_address(self.service.id, self.action)

    @property
    def page(self) -> str:
        return f"/services/{self.service.id}"

    @property
    def title(self) -> str:
        return f"{self.action} {self.service.name}"

    @property
    def verb(self) -> str:
        return f"{self.action[:1].upper()}{self.action[1:]} {self.service.name}"

    @property
    def takes_properties(self) -> bool:
        action = self.definition.lifecycle.actions.get(self.action)
        return self.action == UPDATE or (action is not None and action.takes_properties)

    @property
    def planned(self) -> PlannedOrder:
        definition = self.definition
        return PlannedOrder(self.action, definition.lifecycle, definition.properties, self.service.properties)

    @property
    def offline(self) -> str:
        """Why the agent cannot be asked for its forecast. Empty: it can."""
        if self.force:
            return FORCED
        agent = self.service.agent
        return "" if agent.status == "Connected" else f"the agent {agent.name} is not connected"

    def request(self, posted: PostedForm | None) -> PlannedRequest:
        path = f"/api/v1/services/{self.service.id}"
        headers = {"if-match": f'"{self.version}"'} if self.version else {}
        if self.action == DELETE:
            return PlannedRequest("DELETE", path, None, headers, (("force", "true"),) if self.force else ())
        body: dict[str, Any] = {} if posted is None else {"properties": posted.document}
        if self.action != UPDATE:
            return PlannedRequest("POST", f"{path}/{quote(self.action, safe='')}", body, headers)
        renamed = {"name": self.name} if self.name != self.service.name else {}
        return PlannedRequest("PATCH", path, {**body, **renamed}, headers)

    def carried(self) -> list[tuple[str, str]]:
        named = [("name", self.name)] if self.action == UPDATE else []
        return [*named, ("version", self.version), *([("force", "true")] if self.force else [])]


async def _read_action(call: PageCall) -> ServiceAction:
    action = action_in(call.path["action"]) if "action" in call.path else UPDATE
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"], "order")
        definition = await definition_of(work, row)
        service = await show_service(work, row)
    force = action == DELETE and "true" in (call.asked("force"), call.posted("force"))
    # A deletion by force runs no action.
    if action not in definition.lifecycle.actions and action != UPDATE and not force:
        raise ApiRefusal(
            404, {"error": f"the type of this service has no action {action[:100]}", "code": "not_found"}
        )
    name = call.typed("name", service.name)
    # A posted form keeps its version: it was filled in for that one.
    version = call.posted("version") if call.form else str(service.version)
    return ServiceAction(service, definition, action, name, version, force)


async def _read_scope(call: PageCall, action: ServiceAction) -> FormScope:
    service, schema = action.service, action.definition.properties
    offers = await read_offers(call, service.service_type_id, service.consumer_id)
    references = await read_references(call, schema, service.consumer_id, service.properties)
    choices = FormChoices(offers.options(service.provider_id), references)
    return FormScope(schema, service.properties, service.status, choices)


async def _show(call: PageCall) -> PageAnswer:
    action = await _read_action(call)
    if action.takes_properties:
        scope = await _read_scope(call, action)
        return _form_page(action, scope, initial_entries(scope))
    try:
        page = _plan_page(action, await dry_run(call, action.request(None)), asked_later=True)
    except ApiRefusal as refusal:
        page = _plan_page(action, None, refusal=refusal)
    if action.action == DELETE and not action.force and call.caller.role is Role.ADMIN:
        page = replace(page, other=("Delete without the agent…", f"{action.url}?force=true"))
    return page.answer()


async def _post(call: PageCall) -> PageAnswer:
    action = await _read_action(call)
    if not action.takes_properties:
        return await _post_action(call, action)
    scope, posted = await read_form(call, await _read_scope(call, action))
    if added := call.posted("add"):
        return _form_page(action, scope, add_row(scope, posted.entries, added), retype=posted.retype)
    if removed := call.posted("remove"):
        return _form_page(action, scope, remove_row(posted.entries, removed), retype=posted.retype)
    step = call.posted("step")
    if step == "edit":
        return _form_page(action, scope, posted.entries, retype=posted.retype)
    if step == "place":
        posted = replace(posted, faults=(*posted.faults, *untyped_secrets(call, scope, posted)))
    if posted.faults:
        return _form_page(action, scope, posted.numbered_entries, retype=posted.retype, faults=posted.faults)
    try:
        if step == "place":
            return await _place(call, action, posted)
        return await _plan(call, action, scope, posted)
    except ApiRefusal as refusal:
        if step == "place" and refusal.code == "plan_outdated":
            return await _plan(call, action, scope, posted, outdated=str(refusal))
        return _refused_form(action, scope, posted, refusal)


async def _post_action(call: PageCall, action: ServiceAction) -> PageAnswer:
    """An action without properties: the plan, then the action itself."""
    step = call.posted("step")
    confirmed = action.action != DELETE or call.posted("confirm") == action.service.name.strip()
    outdated = ""
    if step == "place" and confirmed:
        try:
            return await _place(call, action, None)
        except ApiRefusal as refusal:
            if refusal.code != "plan_outdated":
                return replace(_plan_page(action, None, refusal=refusal), status=refusal.status).answer()
            outdated = str(refusal)
    try:
        found = await forecast(call, action.request(None), offline=action.offline)
    except ApiRefusal as refusal:
        return replace(_plan_page(action, None, refusal=refusal), status=refusal.status).answer()
    fault = "" if confirmed or step != "place" else f"This is not the name of the service: {action.service.name}"
    page = _plan_page(action, found)
    return replace(page, outdated=outdated, confirm_fault=fault, status=400 if fault else 200).answer()


async def _place(call: PageCall, action: ServiceAction, posted: PostedForm | None) -> PageAnswer:
    result = await execute(call, action.request(posted), call.posted("digest"))
    has_job = result is None or result.get("activeJob") is not None
    notice = f"{action.action} is queued" if has_job else f"{action.name} is changed; no job was needed"
    return PageAnswer(redirect=action.page, notice="The service is deleted" if action.force else notice)


async def _plan(
    call: PageCall, action: ServiceAction, scope: FormScope, posted: PostedForm, outdated: str = ""
) -> PageAnswer:
    found = await forecast(call, action.request(posted), offline=action.offline)
    form = build_form(scope, posted.entries, retype=posted.retype)
    page = _plan_page(action, found)
    return replace(
        page,
        carried=[*page.carried, *posted.entries.items()],
        retype=[each for each in form.secrets if each.name in posted.retype],
        edit="Change the order",
        outdated=outdated,
    ).answer()


def _plan_page(
    action: ServiceAction,
    found: OrderForecast | None,
    *,
    refusal: ApiRefusal | None = None,
    asked_later: bool = False,
) -> PlanPage:
    deletes = action.action == DELETE
    return PlanPage(
        title=action.verb if asked_later else f"Plan: {action.title}",
        crumbs=(("Services", "/services"), (action.service.name, action.page)),
        url=action.url,
        verb=action.verb,
        discard=action.page,
        carried=action.carried(),
        is_dangerous=deletes,
        confirm_name=action.service.name if deletes and not asked_later else "",
        refusal=refusal,
        asked_later=asked_later,
        order=action.planned,
        forecast=found,
    )


def _refused_form(action: ServiceAction, scope: FormScope, posted: PostedForm, refusal: ApiRefusal) -> PageAnswer:
    faults = [] if _is_of_body(refusal) else [PathFault(path, message) for path, message in refusal.faults]
    return _form_page(action, scope, posted.numbered_entries, retype=posted.retype, faults=faults, refusal=refusal)


def _is_of_body(refusal: ApiRefusal) -> bool:
    """Whether the faults are in fields of the order, not in its properties."""
    return refusal.code == "invalid_body"


def _form_page(
    action: ServiceAction,
    scope: FormScope,
    entries: FormEntries,
    *,
    retype: frozenset[str] = frozenset(),
    faults: Sequence[PathFault] = (),
    refusal: ApiRefusal | None = None,
) -> PageAnswer:
    service, lifecycle = action.service, action.definition.lifecycle
    known = lifecycle.actions.get(action.action)
    to = None if known is None else known.successes.get(service.status)
    hints = ("A new name applies at once, without a job.",)
    order_faults = refusal.faults if refusal is not None and _is_of_body(refusal) else ()
    name = order_field("name", "Name", action.name, kind=ControlKind.TEXT, hints=hints)
    fields = with_faults([name], order_faults) if action.action == UPDATE else ()
    return FormPage(
        heading=action.verb,
        crumbs=(("Services", "/services"), (service.name, action.page)),
        crumb=action.action,
        url=action.url,
        discard=action.page,
        form=build_form(scope, entries, faults=faults, retype=retype),
        fields=fields,
        faults=place_faults(fields, order_faults),
        # The version that the form was filled in for: a change by others in between is refused instead of overwritten.
        # After that refusal it is the present one, which the user now knows of.
        carried=[("version", str(service.version) if _is_stale(refusal) else action.version)],
        facts=service_facts(service),
        aside_title="This change",
        action=action.action,
        lifecycle=lifecycle,
        path=None if to is None else (service.status, to),
        refusal=refusal,
    ).answer()


def _is_stale(refusal: ApiRefusal | None) -> bool:
    return refusal is not None and refusal.status == 412


PAGES = (
    WebPage(method="GET", path="/services/{id}/update", act=_show, access=ACCESS),
    WebPage(method="POST", path="/services/{id}/update", act=_post, access=ACCESS),
    WebPage(method="GET", path="/services/{id}/do/{action}", act=_show, access=ACCESS),
    WebPage(method="POST", path="/services/{id}/do/{action}", act=_post, access=ACCESS),
)
