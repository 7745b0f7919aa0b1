"""The OpenAPI 3.1 description of the API, generated from the endpoints."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from mainstay import __version__
from mainstay.control.access import ACCESS
from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.api.errors import PHRASES
from mainstay.control.store.engine.paging import MAX_PAGE, MAX_PAGE_SIZE, CursorPage
from mainstay.control.store.engine.records import ColumnKind, Table, wire_names

Document = dict[str, Any]
COMPONENT = "#/components/schemas/{name}"
# The code distinguishes the row of a noun from its view; clients see one noun.
INTERNAL_SUFFIX = re.compile(r"(?<=[a-z])(?:View|Row)(?=_?$)")


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every refusal: `code` is stable and for programs, `error` is a message for people."""

    status: str
    error: str
    code: str


@cache
def describe_api() -> Document:
    endpoints = all_endpoints()
    kinds = [ErrorBody, *(kind for endpoint in endpoints for kind in _types(endpoint))]
    schemas, components = msgspec.json.schema_components(kinds, schema_hook=_anything, ref_template=COMPONENT)
    components = {INTERNAL_SUFFIX.sub("", name): _public_names(schema) for name, schema in components.items()}
    found = (_public_names(schema) for schema in schemas[1:])
    # In the order of `_types`.
    paths: dict[str, Document] = {}
    for endpoint in endpoints:
        shown: Document = {}
        if endpoint.body is not None:
            shown["body"] = next(found)
        answers = [next(found) for _ in _answer_types(endpoint)]
        if answers:
            shown["answer"] = answers[0] if len(answers) == 1 else {"anyOf": answers}
        if endpoint.dry is not None:
            shown["dry"] = next(found)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, shown)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mainstay", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                str(status): {"description": phrase, "content": _json({"$ref": COMPONENT.format(name="ErrorBody")})}
                for status, phrase in PHRASES.items()
            },
        },
    }


def _public_names(value: Any) -> Any:
    """Drops the internal suffix from the titles of schemas and the references to them."""
    if isinstance(value, list):
        return [_public_names(child) for child in value]
    if not isinstance(value, dict):
        return value
    return {
        key: INTERNAL_SUFFIX.sub("", child) if key in ("title", "$ref") else _public_names(child)
        for key, child in value.items()
    }


def _anything(kind: type) -> Document:
    """Values that users define may be any JSON."""
    if kind is not object:
        raise TypeError(f"{kind} cannot be described")
    return {"description": "any JSON"}


def _types(endpoint: Endpoint) -> list[Any]:
    dry: list[Any] = [] if endpoint.dry is None else [endpoint.dry]
    return [*([] if endpoint.body is None else [endpoint.body]), *_answer_types(endpoint), *dry]


def _answer_types(endpoint: Endpoint) -> list[Any]:
    answer: Any = endpoint.answer
    if answer is None:
        return []
    cursor = [CursorPage[answer.__args__[0]]] if endpoint.lists is not None else []
    return [answer, *endpoint.also, *cursor]


def _json(schema: object) -> Document:
    return {"application/json": {"schema": schema}}


def _operation(endpoint: Endpoint, shown: Document) -> Document:
    operation: Document = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', endpoint.path)}",
        "tags": [_tag(endpoint.path)],
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": _responses(endpoint, shown),
    }
    if endpoint.access is None:
        operation["security"] = []
    else:
        allowed = ACCESS[endpoint.access]
        operation["description"] = "; ".join(f"{role}: {relation}" for role, relation in allowed.items())
    if "body" in shown:
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))  # type: ignore[arg-type]
        operation["requestBody"] = {"required": required, "content": _json(shown["body"])}
    if endpoint.raw_body is not None:
        content = {endpoint.raw_body: {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _tag(path: str) -> str:
    parts = [part for part in path.removeprefix("/api/v1").split("/") if part]
    return parts[0] if path.startswith("/api/v1") else "server"


def _responses(endpoint: Endpoint, shown: Document) -> Document:
    answer: Document = {"description": PHRASES.get(endpoint.status, "Done")}
    schema = shown.get("answer")
    if schema is not None:
        answer["content"] = {endpoint.media_type: {"schema": schema}}
    statuses = set(endpoint.refusals)
    if endpoint.access is not None:
        statuses |= {401, 403, 429, 503}
    if endpoint.body is not None:
        statuses |= {400, 408, 413}
    refusals: Document = {
        str(status): {"description": "Done"} if status < 400 else {"$ref": f"#/components/responses/{status}"}
        for status in sorted(statuses)
    }
    if endpoint.path == "/ready":
        refusals["503"] = {"description": "Not ready", "content": answer["content"]}
    if "dry" in shown:
        refusals["200"] = {"description": "What would happen, or what else ended", "content": _json(shown["dry"])}
    return {str(endpoint.status): answer, **refusals}


def _path_parameters(endpoint: Endpoint) -> list[Document]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "format": "uuid"} if name == "id" else {"type": "string"},
        }
        for name in re.findall(r"\{(\w+)\}", endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[Document]:
    found = [
        {"name": each.name, "in": "query", "description": each.description, "schema": dict(each.schema)}
        for each in endpoint.query
    ]
    if isinstance(endpoint.lists, Table):
        found += _list_parameters(endpoint.lists)
    return found


def _list_parameters(table: Table[Any]) -> list[Document]:
    scalars = [name for name, field in wire_names(table.record).items() if table.kinds[field] is not ColumnKind.JSON]
    paging = [
        {"name": "page", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}},
        {"name": "pageSize", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE}},
        {
            "name": "sort",
            "in": "query",
            "description": "Field to sort by; prefix - for descending order",
            "schema": {"type": "string", "enum": [f"{sign}{name}" for name in scalars for sign in ("", "+", "-")]},
        },
        {
            "name": "after",
            "in": "query",
            "description": "`next` of the previous page; empty for the first page",
            "schema": {"type": "string"},
        },
    ]
    filters = [
        {
            "name": name,
            "in": "query",
            "description": "Matches any of the given values",
            "style": "form",
            "explode": True,
            "schema": {"type": "array", "items": _filter_schema(table.kinds[field])},
        }
        for name, field in wire_names(table.record).items()
        if name in scalars
    ]
    return [*paging, *filters]


def _filter_schema(kind: ColumnKind) -> Document:
    return {
        ColumnKind.INTEGER: {"type": "integer"},
        ColumnKind.REAL: {"type": "number"},
        ColumnKind.BOOLEAN: {"type": "boolean"},
        ColumnKind.TIME: {"type": "string", "format": "date-time"},
    }.get(kind, {"type": "string"})
