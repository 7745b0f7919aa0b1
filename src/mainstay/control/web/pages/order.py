"""Order a service: choose a type, fill in the form, see the plan, place exactly that."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mainstay.control.access import Role
from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.service_types import ServiceTypeDefinition
from mainstay.control.operations.catalogue import read_offered_types
from mainstay.control.store.service_types import find_version
from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall, WebPage
from mainstay.control.web.forms.choices import FormChoices
from mainstay.control.web.forms.fields import build_form
from mainstay.control.web.forms.form_state import FormEntries, FormScope, add_row, initial_entries, remove_row
from mainstay.control.web.forms.posted import PostedForm
from mainstay.control.web.noun_pages import may
from mainstay.control.web.order_choices import OrderOffers, read_form, read_offers, read_references
from mainstay.control.web.order_fields import (
    OrderEntries,
    OrderFieldChoices,
    asked_entries,
    order_fields,
    place_faults,
    posted_entries,
    read_customers,
    read_groups,
)
from mainstay.control.web.order_pages import FormPage, PlanPage, untyped_secrets
from mainstay.control.web.planned_requests import PlannedRequest, execute, forecast
from mainstay.control.web.views.plans import PlannedOrder

PATH = "/order/{id}"
ACCESS = ("service", "order")
SERVICES = "/api/v1/services"


@dataclass(frozen=True, slots=True)
class NewOrder:
    """An order while it is filled in: the type, what was typed, and what it may be chosen from."""

    service_type: Mapping[str, Any]
    definition: ServiceTypeDefinition
    typed: OrderEntries
    choices: OrderFieldChoices
    scope: FormScope

    @property
    def url(self) -> str:
        return f"/order/{self.service_type['id']}"

    @property
    def offers(self) -> OrderOffers:
        return self.choices.offers

    @property
    def consumer_id(self) -> str:
        return "" if self.choices.customers is None else self.choices.customers.chosen

    def request(self, posted: PostedForm, key: str) -> PlannedRequest:
        typed = self.typed
        # An unknown customer goes to the server as it was typed.
        customer = "" if self.choices.customers is None else self.consumer_id or typed.consumer
        members = {
            "serviceTypeId": self.service_type["id"],
            "name": typed.name or None,
            "properties": posted.document,
            "groupId": typed.group_id or None,
            "consumerId": None if typed.group_id else customer or None,
            "providerId": typed.provider_id or None,
            "agentId": typed.agent_id or None,
            "agentTags": typed.tag_list or None,
        }
        body = {name: value for name, value in members.items() if value is not None}
        return PlannedRequest("POST", SERVICES, body, {"idempotency-key": key} if key else {})

    def facts(self) -> list[tuple[str, str, str]]:
        offers = self.offers.of_provider(self.typed.provider_id)
        agents = [agent for offer in offers for agent in offer.agents]
        chosen = next((each.name for each in agents if each.id == self.typed.agent_id), "chosen when placed")
        provider = offers[0].provider.name if len(offers) == 1 else f"one of {len(offers)}"
        return [("Provider", provider if offers else "none offers this type", ""), ("Agent", chosen, "")]

    def offline(self) -> str:
        """Why no agent can be asked for its forecast. Empty: one can."""
        agents = [agent for offer in self.offers.of_provider(self.typed.provider_id) for agent in offer.agents]
        wanted = [each for each in agents if self.typed.agent_id in ("", each.id)]
        connected = any(each.status == "Connected" for each in wanted)
        return "" if connected or not wanted else "no agent that may get this order is connected"


async def _choose(call: PageCall) -> PageAnswer:
    async with call.reading() as work:
        types = await read_offered_types(work, None)
    may_add = call.caller.role is Role.ADMIN and may(call, "agent")
    return PageAnswer("order_types.html", {"types": types, "may_add": may_add})


async def _read_order(call: PageCall, typed: OrderEntries) -> NewOrder:
    service_type = await call.api("GET", f"/api/v1/service-types/{call.path['id']}")
    type_id = service_type["id"]
    async with call.reading() as work:
        found = await find_version(work.tx, type_id)
        if found is None:
            raise ApiRefusal(404, {"error": f"there is no service type {type_id}", "code": "not_found"})
        definition = await work.tools.definitions.read(work.tx, type_id, found.updated_at)
    customers = await read_customers(call, typed.consumer) if call.caller.role is Role.ADMIN else None
    consumer_id = customers.chosen if customers is not None else str(call.caller.participant_id)
    offers = await read_offers(call, type_id, consumer_id or None)
    groups = await read_groups(call, consumer_id) if consumer_id else []
    schema = definition.properties
    references = await read_references(call, schema, consumer_id or None, None) if consumer_id else {}
    choices = FormChoices(offers.options(typed.provider_id), references)
    field_choices = OrderFieldChoices(customers, groups, offers)
    return NewOrder(service_type, definition, typed, field_choices, FormScope(schema, choices=choices))


async def _show(call: PageCall) -> PageAnswer:
    order = await _read_order(call, asked_entries(call))
    return _form_page(order, initial_entries(order.scope))


def _form_page(
    order: NewOrder,
    entries: FormEntries,
    *,
    retype: frozenset[str] = frozenset(),
    faults: Sequence[PathFault] = (),
    order_faults: Sequence[tuple[str, str]] = (),
    refusal: ApiRefusal | None = None,
) -> PageAnswer:
    fields = order_fields(order.typed, order.choices, order_faults)
    lifecycle = order.definition.lifecycle
    create = lifecycle.actions.get("create")
    first = None if create is None else create.successes.get(lifecycle.initial_state)
    name = order.service_type["name"]
    return FormPage(
        heading=f"Order {name}",
        crumbs=(("Services", "/services"), ("Order", "/order")),
        crumb=name,
        url=order.url,
        discard="/services",
        other=("Another type", "/order"),
        form=build_form(order.scope, entries, faults=faults, retype=retype),
        fields=fields,
        faults=place_faults(fields, order_faults),
        facts=[("Type", name, f"/service-types/{order.service_type['id']}"), *order.facts()],
        lifecycle=lifecycle,
        path=None if first is None else (lifecycle.initial_state, first),
        can_refresh=order.choices.customers is not None or len(order.offers.offers) > 1,
        refusal=refusal,
    ).answer()


async def _post(call: PageCall) -> PageAnswer:
    order = await _read_order(call, posted_entries(call))
    scope, posted = await read_form(call, order.scope)
    order = replace(order, scope=scope)
    step = call.posted("step")
    if added := call.posted("add"):
        return _form_page(order, add_row(scope, posted.entries, added), retype=posted.retype)
    if removed := call.posted("remove"):
        return _form_page(order, remove_row(posted.entries, removed), retype=posted.retype)
    if step in ("edit", "refresh"):
        return _form_page(order, posted.entries, retype=posted.retype)
    if step == "place":
        posted = replace(posted, faults=(*posted.faults, *untyped_secrets(call, scope, posted)))
    if posted.faults:
        return await _refused_page(call, order, posted, None)
    try:
        if step == "place":
            return await _place(call, order, posted)
        return await _plan(call, order, posted)
    except ApiRefusal as refusal:
        if step == "place" and refusal.code == "plan_outdated":
            return await _plan(call, order, posted, outdated=str(refusal))
        return await _refused_page(call, order, posted, refusal)


async def _place(call: PageCall, order: NewOrder, posted: PostedForm) -> PageAnswer:
    service = await execute(call, order.request(posted, call.posted("key")), call.posted("digest"))
    return PageAnswer(redirect=f"/services/{service['id']}", notice=f"{service['name']} is ordered")


async def _plan(call: PageCall, order: NewOrder, posted: PostedForm, outdated: str = "") -> PageAnswer:
    form = build_form(order.scope, posted.entries, retype=posted.retype)
    return PlanPage(
        title=f"Plan: order {order.typed.name}",
        crumbs=(("Services", "/services"), ("Order", order.url)),
        url=order.url,
        verb=f"Order {order.typed.name}",
        discard="/services",
        # The key makes a repeated click place one order.
        carried=[*order.typed.pairs(), *posted.entries.items(), ("key", secrets.token_hex(16))],
        retype=[each for each in form.secrets if each.name in posted.retype],
        edit="Change the order",
        outdated=outdated,
        order=PlannedOrder("create", order.definition.lifecycle, order.definition.properties),
        forecast=await forecast(call, order.request(posted, ""), offline=order.offline()),
    ).answer()


async def _refused_page(
    call: PageCall, order: NewOrder, posted: PostedForm, refusal: ApiRefusal | None
) -> PageAnswer:
    """The form with all faults at once: those of the body, those of the properties, and text that is not JSON."""
    faults = [] if refusal is None else [PathFault(path, message) for path, message in refusal.faults]
    order_faults: list[tuple[str, str]] = []
    if refusal is None or refusal.code != "validation_failed":
        order_faults = [(fault.path, fault.message) for fault in faults]
        faults = await _validate(call, order, posted)
    own = {fault.path for fault in posted.faults}
    located = _locate(order, refusal)
    if refusal is not None and refusal.status == 400 and not refusal.faults and located:
        refusal = None
    return _form_page(
        order,
        posted.numbered_entries,
        retype=posted.retype,
        faults=[*posted.faults, *(fault for fault in faults if fault.path not in own)],
        order_faults=[*order_faults, *located],
        refusal=refusal,
    )


def _locate(order: NewOrder, refusal: ApiRefusal | None) -> list[tuple[str, str]]:
    """(field, message) of the faults that the server reports without a field of the form."""
    found = []
    if order.choices.customers is not None and not order.typed.consumer and not order.typed.group_id:
        found.append(("consumerId", "choose the customer"))
    if refusal is not None and refusal.code == "no_agent" and order.typed.tag_list:
        found.append(("agentTags", str(refusal)))
    return found


async def _validate(call: PageCall, order: NewOrder, posted: PostedForm) -> list[PathFault]:
    """The faults of the properties, when the server has not come to them."""
    typed = order.typed
    given = {"agentId": typed.agent_id, "providerId": typed.provider_id, "groupId": typed.group_id}
    body = {"properties": posted.document, **{name: value for name, value in given.items() if value}}
    try:
        answer = await call.api("POST", f"/api/v1/service-types/{order.service_type['id']}/validate", body)
    except ApiRefusal:
        return []
    return [PathFault(each["path"], each["message"]) for each in answer["errors"]]


PAGES = (
    WebPage(
        method="GET",
        path="/order",
        act=_choose,
        access=ACCESS,
    ),
    WebPage(method="GET", path=PATH, act=_show, access=ACCESS),
    WebPage(method="POST", path=PATH, act=_post, access=ACCESS),
)
