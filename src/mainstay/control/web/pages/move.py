"""Move a service to another agent, with the plan of the target before anything happens."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.service_types import ServiceTypeDefinition
from mainstay.control.operations.catalogue import OfferingAgent
from mainstay.control.operations.machinery.job_chains import definition_of
from mainstay.control.operations.machinery.views import ServiceView, show_service
from mainstay.control.store.services import SERVICES
from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall, WebPage
from mainstay.control.web.forms.choices import ValueChoice
from mainstay.control.web.forms.fields import ControlKind, FormField, PlacedFault, build_form
from mainstay.control.web.forms.form_state import FormScope
from mainstay.control.web.order_choices import read_offers
from mainstay.control.web.order_pages import FormPage, PlanPage, service_facts
from mainstay.control.web.planned_requests import OrderForecast, PlannedRequest, execute, forecast
from mainstay.control.web.views.plans import MOVE, PlannedOrder

ACCESS = ("service", "move")
FIELD = "agentId"
FORCE = "force"
MAX_LISTED = 1000
LEAD = (
    "The target creates the service and brings it to its state. When that succeeds, the service changes its agent, and the"
    " old one cleans up its host. Files of the old host are not copied."
)
# The form has no properties: a move changes none that a user sets.
NO_PROPERTIES = PropertySchema(None, ())


@dataclass(frozen=True, slots=True)
class MoveForm:
    """A move of one service. `agent_id`, `force` and `version` are as posted."""

    service: ServiceView
    definition: ServiceTypeDefinition
    agents: tuple[OfferingAgent, ...]
    agent_id: str
    force: str
    version: str

    @property
    def page(self) -> str:
        return f"/services/{self.service.id}"

    @property
    def url(self) -> str:
        return f"{self.page}/move"

    @property
    def crumbs(self) -> tuple[tuple[str, str], ...]:
        return ("Services", "/services"), (self.service.name, self.page)

    @property
    def verb(self) -> str:
        return f"Move {self.service.name}"

    @property
    def request(self) -> PlannedRequest:
        headers = {"if-match": f'"{self.version}"'} if self.version else {}
        path = f"/api/v1/services/{self.service.id}/agent"
        return PlannedRequest("PUT", path, {"agentId": self.agent_id, "force": self.force == "true"}, headers)

    @property
    def offline(self) -> str:
        """Why the target cannot be asked for its forecast. Empty: it can."""
        target = next((each for each in self.agents if each.id == self.agent_id), None)
        if target is None or target.status == "Connected":
            return ""
        return f"the agent {target.name} is not connected"


async def _read_form(call: PageCall) -> MoveForm:
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"], "move")
        definition = await definition_of(work, row)
        service = await show_service(work, row)
    offers = await read_offers(call, service.service_type_id, service.consumer_id)
    agents = [agent for offer in offers.offers for agent in offer.agents if agent.id != service.agent_id]
    return MoveForm(
        service, definition, tuple(agents), call.posted(FIELD), call.posted(FORCE), call.posted("version")
    )


async def _show(call: PageCall) -> PageAnswer:
    return _form_page(await _read_form(call))


async def _post(call: PageCall) -> PageAnswer:
    form = await _read_form(call)
    step = call.posted("step")
    if step == "edit":
        return _form_page(form)
    if not form.agent_id:
        return _form_page(form, fault="Choose the agent that gets the service")
    try:
        if step == "place":
            await execute(call, form.request, call.posted("digest"))
            return PageAnswer(redirect=form.page, notice="The move is queued on its target")
        return _plan_page(form, await forecast(call, form.request, offline=form.offline))
    except ApiRefusal as refusal:
        if step == "place" and refusal.code == "plan_outdated":
            found = await forecast(call, form.request, offline=form.offline)
            return _plan_page(form, found, outdated=str(refusal))
        return _form_page(form, refusal=refusal)


def _plan_page(form: MoveForm, found: OrderForecast, outdated: str = "") -> PageAnswer:
    definition = form.definition
    return PlanPage(
        title=f"Plan: {form.verb}",
        crumbs=form.crumbs,
        url=form.url,
        verb=form.verb,
        discard=form.page,
        carried=[(FIELD, form.agent_id), (FORCE, form.force), ("version", form.version)],
        edit="Choose another agent",
        outdated=outdated,
        order=PlannedOrder(MOVE, definition.lifecycle, definition.properties, form.service.properties),
        forecast=found,
    ).answer()


def _form_page(form: MoveForm, *, fault: str = "", refusal: ApiRefusal | None = None) -> PageAnswer:
    service = form.service
    # The box is needed only for an agent that is not connected.
    asks_force = form.force == "true" or (refusal is not None and refusal.code == "agent_offline")
    scope = FormScope(NO_PROPERTIES, {}, service.status)
    return FormPage(
        heading=form.verb,
        crumbs=form.crumbs,
        crumb="move",
        url=form.url,
        discard=form.page,
        lead=LEAD,
        form=build_form(scope, {}),
        fields=(_agent_field(form, fault), *((_force_field(form),) if asks_force else ())),
        faults=(PlacedFault(FIELD, fault, FIELD),) if fault else (),
        # A change by others in between is refused instead of overwritten.
        carried=[("version", str(service.version))],
        facts=service_facts(service),
        aside_title="This move",
        action=MOVE,
        lifecycle=form.definition.lifecycle,
        refusal=refusal,
    ).answer()


def _agent_field(form: MoveForm, fault: str) -> FormField:
    agents = [(each.id, f"{each.name} ({', '.join((each.status, *each.tags))})") for each in form.agents[:MAX_LISTED]]
    hints = ("Agents that serve this type for this customer.",) if agents else ("No other agent serves this type.",)
    return FormField(
        kind=ControlKind.SELECT,
        name=FIELD,
        path=FIELD,
        label="Agent",
        text=form.agent_id,
        choices=tuple(ValueChoice(agent_id, agent_id, label) for agent_id, label in (("", "Choose"), *agents)),
        required=True,
        hints=hints,
        faults=(fault,) if fault else (),
    )


def _force_field(form: MoveForm) -> FormField:
    return FormField(
        kind=ControlKind.CHECK,
        name=FORCE,
        path=FORCE,
        label="Move although the agent is not connected",
        checked=form.force == "true",
        hints=("The service stays where it is until the agent connects and has created it.",),
    )


PAGES = (
    WebPage(method="GET", path="/services/{id}/move", act=_show, access=ACCESS),
    WebPage(method="POST", path="/services/{id}/move", act=_post, access=ACCESS),
)
