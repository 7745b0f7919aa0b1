"""The API description as one self-contained HTML page, without scripts, fonts or images."""

from __future__ import annotations

import json
from html import escape
from typing import Any

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2937}"
    "h2{margin-top:2rem;text-transform:capitalize}details{border:1px solid #d1d5db;border-radius:6px;margin:.4rem 0}"
    "summary{padding:.4rem .8rem;cursor:pointer}code,pre{font:13px ui-monospace,monospace}"
    "summary b{display:inline-block;width:4.5rem}section{padding:.2rem .8rem .8rem}"
    "pre{background:#f3f4f6;padding:.6rem;overflow:auto;border-radius:4px}td{padding-right:1rem;vertical-align:top}"
)


def docs_page(description: dict[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(path, method, operation, description))
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in groups.items())
    title = f"{description['info']['title']} {description['info']['version']}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>"
        f'<p>Machine-readable: <a href="/openapi.json">openapi.json</a>.</p>{body}</html>'
    )


def _operation(path: str, method: str, operation: dict[str, Any], description: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{escape(each['in'])}<td>{escape(each.get('description', ''))}"
        for each in operation["parameters"]
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answers = "".join(
        f"<tr><td><code>{status}</code><td>{escape(_resolve(answer, description)['description'])}"
        for status, answer in operation["responses"].items()
    )
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}</summary>"
        f"<section><p>{escape(operation.get('description', 'no token required'))}</p><table>{rows}</table>"
        f"{_body_schema(body, description)}<table>{answers}</table></section></details>"
    )


def _resolve(part: dict[str, Any], description: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        found: Any = description
        for key in part["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        part = found
    return part


def _body_schema(schema: dict[str, Any] | None, description: dict[str, Any]) -> str:
    if schema is None:
        return ""
    text = json.dumps(_resolve(schema, description), indent=2, ensure_ascii=False)
    return f"<p>Body</p><pre>{escape(text)}</pre>"
