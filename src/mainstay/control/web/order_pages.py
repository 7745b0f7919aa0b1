"""What the pages of orders, updates and actions have in common: the form, and the plan before anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.state_kind import kind_of_state
from mainstay.control.operations.machinery.views import ServiceView
from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall
from mainstay.control.web.forms.fields import FormField, PlacedFault, PropertyForm, build_form
from mainstay.control.web.forms.form_state import FormScope
from mainstay.control.web.forms.posted import PostedForm
from mainstay.control.web.planned_requests import OrderForecast
from mainstay.control.web.views.plans import PlannedOrder, show_plan

Crumbs = tuple[tuple[str, str], ...]
RETYPE = "type the secret again: it is part of the plan, and pages never contain secrets"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPage:
    """The page with a form. `fields` are those beside the properties, `facts` are (name, text, link)."""

    heading: str
    crumbs: Crumbs
    crumb: str
    url: str
    discard: str
    form: PropertyForm
    lead: str = ""
    other: tuple[str, str] | None = None
    fields: tuple[FormField, ...] = ()
    # Faults of fields beside the properties.
    faults: tuple[PlacedFault, ...] = ()
    carried: Sequence[tuple[str, str]] = ()
    facts: Sequence[tuple[str, str, str]] = ()
    aside_title: str = "This order"
    action: str = "create"
    lifecycle: Lifecycle
    # The states before and after the first step. None: the action has no step from here.
    path: tuple[str, str] | None = None
    can_refresh: bool = False
    refusal: ApiRefusal | None = None

    def answer(self) -> PageAnswer:
        shown = None if self.path is None else [(state, kind_of_state(self.lifecycle, state)) for state in self.path]
        faults = (*self.faults, *self.form.faults)
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        values |= {
            "path": shown,
            "faults": faults,
            # Faults are listed at their fields and on top.
            "refusal": "" if self.refusal is None or self.refusal.faults else str(self.refusal),
        }
        status = self.refusal.status if self.refusal is not None else 400 if faults else 200
        return PageAnswer("order.html", values, status=status)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """The page with a plan. The form of the page posts `carried` and the secrets of `retype` back."""

    title: str
    crumbs: Crumbs
    url: str
    # The button that does what was planned.
    verb: str
    discard: str
    carried: Sequence[tuple[str, str]] = ()
    retype: Sequence[FormField] = ()
    # The button that leads back to the form. Empty: there is no form.
    edit: str = ""
    # A link beside the buttons: (label, address).
    other: tuple[str, str] | None = None
    is_dangerous: bool = False
    # The name to type before the last step. Empty: none.
    confirm_name: str = ""
    confirm_fault: str = ""
    # Why an earlier plan does not hold.
    outdated: str = ""
    # Why there is no plan.
    refusal: ApiRefusal | None = None
    # A forecast of the server alone; the agent is asked when the user asks for the plan.
    asked_later: bool = False
    status: int = 200
    order: PlannedOrder
    forecast: OrderForecast | None = None

    def answer(self) -> PageAnswer:
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        forecast = self.forecast
        shown = None if forecast is None else show_plan(self.order, forecast.document, datetime.now(UTC))
        values |= {
            "plan": shown,
            # The page is the new plan that the message asks for.
            "outdated": self.outdated.removesuffix("; make a new plan"),
            "without_agent": "" if forecast is None else forecast.without_agent,
            "refusal": "" if self.refusal is None else str(self.refusal),
        }
        return PageAnswer("plan.html", values, status=self.status)


def service_facts(service: ServiceView) -> list[tuple[str, str, str]]:
    return [
        ("Service", service.name, f"/services/{service.id}"),
        ("Type", service.service_type.name, f"/service-types/{service.service_type_id}"),
        ("Agent", f"{service.agent.name} ({service.agent.status})", ""),
        ("State", service.status, ""),
    ]


def untyped_secrets(call: PageCall, scope: FormScope, posted: PostedForm) -> tuple[PathFault, ...]:
    """Faults of the secrets that the plan was made with and that were not typed again."""
    missing = {text for name, text in call.form if name == "secret"} - posted.retype
    secrets = build_form(scope, posted.entries).secrets
    return tuple(PathFault(each.path, RETYPE) for each in secrets if each.name in missing)
