"""The fields of an order beside its properties: name, customer, group, provider, agent and tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mainstay.control.domain.values import is_uuid
from mainstay.control.operations.services import DEFAULT_GROUP
from mainstay.control.web.contract import PageCall
from mainstay.control.web.forms.choices import ValueChoice
from mainstay.control.web.forms.fields import ControlKind, FormField, PlacedFault
from mainstay.control.web.order_choices import OrderOffers

MAX_LISTED = 100
MAX_TAGS = 100
TAGS = "agentTags"
NAMES = ("name", "consumerId", "groupId", "providerId", "agentId", TAGS)
ANY_AGENT = "Any agent, connected ones first"
TAGS_HINT = "Only agents that have all of these tags, separated by commas"
NAME_HINT = "Any text. Shown in lists; the host uses the id."


@dataclass(frozen=True, slots=True)
class OrderEntries:
    """What was typed beside the properties."""

    name: str = ""
    consumer: str = ""
    group_id: str = ""
    provider_id: str = ""
    agent_id: str = ""
    tags: str = ""

    @property
    def tag_list(self) -> list[str]:
        return [tag.strip() for tag in self.tags.split(",") if tag.strip()][: MAX_TAGS + 1]

    def pairs(self) -> list[tuple[str, str]]:
        """The entries as a form posts them."""
        texts = (self.name, self.consumer, self.group_id, self.provider_id, self.agent_id, self.tags)
        return [(name, text) for name, text in zip(NAMES, texts, strict=True) if text]


def posted_entries(call: PageCall) -> OrderEntries:
    # A name keeps its surrounding space: the server decides about it.
    return OrderEntries(call.typed("name"), *(call.posted(each) for each in NAMES[1:]))


def asked_entries(call: PageCall) -> OrderEntries:
    return OrderEntries(*(call.asked(each) for each in NAMES))


@dataclass(frozen=True, slots=True)
class Customers:
    """The participants that an admin may order for. `chosen` is the id of the one that was named; empty: none."""

    listed: Sequence[tuple[str, str]]
    complete: bool
    chosen: str = ""


async def read_customers(call: PageCall, text: str) -> Customers:
    """`text` is an id or a name."""
    query = [("after", ""), ("sort", "name"), ("status", "Enabled"), ("pageSize", str(MAX_LISTED))]
    page = await call.api("GET", "/api/v1/participants", query=query)
    listed = [(each["id"], each["name"]) for each in page["items"]]
    if is_uuid(text):
        return Customers(listed, not page.get("next"), text.lower())
    named = [id_ for id_, name in listed if name == text]
    if text and not named and page.get("next"):
        found = await call.api("GET", "/api/v1/participants", query=[*query, ("name", text)])
        named = [each["id"] for each in found["items"] if each["name"] == text]
    return Customers(listed, not page.get("next"), named[0] if len(named) == 1 else "")


async def read_groups(call: PageCall, consumer_id: str) -> Sequence[tuple[str, str]]:
    """The groups of the customer; of the caller if the customer is empty."""
    query = [("after", ""), ("sort", "name"), ("pageSize", str(MAX_LISTED)), ("consumerId", consumer_id)]
    page = await call.api("GET", "/api/v1/service-groups", query=query)
    return [(each["id"], each["name"]) for each in page["items"]]


@dataclass(frozen=True, slots=True)
class OrderFieldChoices:
    # None: the caller orders for itself.
    customers: Customers | None
    groups: Sequence[tuple[str, str]]
    offers: OrderOffers


def order_field(
    name: str,
    label: str,
    text: str,
    listed: Sequence[tuple[str, str]] = (),
    kind: ControlKind = ControlKind.SELECT,
    hints: tuple[str, ...] = (),
) -> FormField:
    choices = tuple(ValueChoice(id_, id_, title) for id_, title in listed)
    if text and kind is ControlKind.SELECT and all(text != id_ for id_, _ in listed):
        choices = (*choices, ValueChoice(text, text, text, "not offered"))
    return FormField(
        kind=kind,
        name=name,
        path=name,
        label=label,
        text=text,
        choices=choices,
        required=name != TAGS,
        placeholder="Name or id" if kind is ControlKind.SEARCH else "",
        hints=hints,
        monospaced=name == TAGS,
    )


def with_faults(fields: Iterable[FormField], faults: Sequence[tuple[str, str]]) -> tuple[FormField, ...]:
    """`faults` are (field, message) of the whole form."""
    return tuple(
        replace(each, faults=tuple(message for path, message in faults if path == each.path)) for each in fields
    )


def order_fields(
    typed: OrderEntries, choices: OrderFieldChoices, faults: Sequence[tuple[str, str]]
) -> tuple[FormField, ...]:
    fields = [order_field("name", "Name", typed.name, kind=ControlKind.TEXT, hints=(NAME_HINT,))]
    customers = choices.customers
    if customers is not None and customers.complete:
        listed = [("", "Choose"), *customers.listed]
        fields.append(order_field("consumerId", "Customer", customers.chosen or typed.consumer, listed))
    elif customers is not None:
        listed = [(name, name) for _, name in customers.listed]
        fields.append(order_field("consumerId", "Customer", typed.consumer, listed, kind=ControlKind.SEARCH))
    fields.append(order_field("groupId", "Group", typed.group_id, _groups(typed, choices.groups)))
    providers = [(each.provider.id, each.provider.name) for each in choices.offers.offers]
    if len(providers) > 1 or typed.provider_id:
        fields.append(order_field("providerId", "Provider", typed.provider_id, [("", "Choose"), *providers]))
    fields.append(order_field("agentId", "Agent", typed.agent_id, [("", ANY_AGENT), *_agents(typed, choices.offers)]))
    fields.append(order_field(TAGS, "Tags", typed.tags, kind=ControlKind.TEXT, hints=(TAGS_HINT,)))
    return with_faults(fields, faults)


def _groups(typed: OrderEntries, groups: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """An order without a group goes to the group of this name, so that its row would be the same choice again."""
    named = [id_ for id_, name in groups if name == DEFAULT_GROUP]
    repeated = named[0] if len(named) == 1 and named[0] != typed.group_id else ""
    return [("", DEFAULT_GROUP), *((id_, name) for id_, name in groups if id_ != repeated)]


def _agents(typed: OrderEntries, offers: OrderOffers) -> list[tuple[str, str]]:
    found = [agent for offer in offers.of_provider(typed.provider_id) for agent in offer.agents]
    return [(each.id, f"{each.name} ({', '.join((each.status, *each.tags))})") for each in found[:MAX_LISTED]]


def place_faults(fields: Sequence[FormField], faults: Sequence[tuple[str, str]]) -> tuple[PlacedFault, ...]:
    known = {each.path for each in fields}
    return tuple(PlacedFault(path, message, path if path in known else None) for path, message in faults)
