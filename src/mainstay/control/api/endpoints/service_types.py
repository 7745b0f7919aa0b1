"""Service types: definitions, exports of them, and validation of orders."""

from __future__ import annotations

from mainstay.control.api.contract import BOOLEAN, Answer, Call, Endpoint, QueryParameter
from mainstay.control.api.nouns import create_endpoint, delete_endpoint, detail_endpoint, list_endpoint, show_endpoint
from mainstay.control.domain.lifecycle.svg import draw_svg
from mainstay.control.domain.properties.json_schema import export_json_schema
from mainstay.control.operations import service_types
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.service_types import (
    ChangedServiceType,
    DefinitionReport,
    OrderCheck,
    ServiceTypeChange,
    Verdict,
)
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow

PATH = "/api/v1/service-types"


async def _change(call: Call) -> Answer:
    async with call.transaction() as work:
        before = await work.find(SERVICE_TYPES, call.path["id"], "write", lock=True)
        wanted = call.read_change(ServiceTypeChange, before)
        return Answer(
            await service_types.change(work, before, wanted, force=call.flag("force"), dry_run=call.flag("dryRun"))
        )


async def _validate(call: Call) -> Answer:
    async with call.reading() as work:
        service_type = await work.find(SERVICE_TYPES, call.path["id"])
        return Answer(await service_types.validate(work, service_type, call.read(OrderCheck)))


async def _export_json_schema(work: UnitOfWork, row: ServiceTypeRow) -> dict[str, object]:
    return export_json_schema(work.tools.definitions.of_service_type(row).properties, row.name)


async def _report(work: UnitOfWork, row: ServiceTypeRow) -> DefinitionReport:
    return service_types.report(work, row)


async def _draw(call: Call) -> Answer:
    async with call.reading() as work:
        service_type = await work.find(SERVICE_TYPES, call.path["id"])
        definition = work.tools.definitions.of_service_type(service_type)
    return Answer(draw_svg(definition.lifecycle, service_type.name).encode(), media_type="image/svg+xml")


ENDPOINTS = (
    list_endpoint(PATH, SERVICE_TYPES),
    show_endpoint(PATH, SERVICE_TYPES),
    create_endpoint(PATH, SERVICE_TYPES, service_types.NewServiceType, service_types.create),
    Endpoint(
        method="PATCH",
        path=f"{PATH}/{{id}}",
        act=_change,
        access=("service_type", "write"),
        summary="Change a service type; refused if living services would not fit it",
        body=ServiceTypeChange,
        answer=ChangedServiceType,
        also=(service_types.ChangeForecast,),
        query=(
            QueryParameter(
                "force",
                "Change it even if services do not fit: seals values that become secret, deletes secrets that become"
                " plain. Refused anyway: removing a state in use, or changing secrets while a job is active",
                BOOLEAN,
            ),
            QueryParameter("dryRun", "Change nothing; report what does not fit", BOOLEAN),
        ),
        refusals=(400, 404, 409),
    ),
    delete_endpoint(PATH, SERVICE_TYPES, service_types.delete),
    Endpoint(
        method="POST",
        path=f"{PATH}/{{id}}/validate",
        act=_validate,
        access=("service_type", "read"),
        summary="Check whether an order with these properties would be accepted",
        body=OrderCheck,
        only_reads=True,
        answer=Verdict,
        refusals=(400, 404),
    ),
    detail_endpoint(
        f"{PATH}/{{id}}/json-schema",
        SERVICE_TYPES,
        _export_json_schema,
        summary="Export the property schema as JSON Schema 2020-12",
        answer=dict[str, object],
    ),
    detail_endpoint(
        f"{PATH}/{{id}}/lifecycle-report",
        SERVICE_TYPES,
        _report,
        summary="List likely mistakes in the definition",
        answer=DefinitionReport,
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/lifecycle.svg",
        act=_draw,
        access=("service_type", "read"),
        summary="Draw the lifecycle as SVG",
        answer=str,
        media_type="image/svg+xml",
        refusals=(400, 404),
    ),
)
