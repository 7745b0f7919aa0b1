"""Renders templates. Everything is escaped unless a drawing made it; an unknown name is an error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mainstay.control.web.static_files import static_url
from mainstay.control.web.views import formatting

EMPTY = Markup("")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("mainstay.control.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        ago=_ago,
        clock=_clock,
        moment=_moment,
        day=_day,
        duration=formatting.duration,
        running_time=formatting.running_time,
        thousands=formatting.thousands,
    )
    made.globals.update(
        static=static_url,
        shape_of=formatting.shape_of,
        plural=formatting.plural,
        JOB_STATES=formatting.JOB_STATES,
        AGENT_STATES=formatting.AGENT_STATES,
        LAST_SYNC=formatting.LAST_SYNC,
        link=_link,
    )
    # Macros that every page uses. A live region renders one block alone, without the imports of its template.
    made.globals["ui"] = made.get_template("parts/ui.html").module
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(values)


def render_block(template: str, block: str, values: Mapping[str, Any]) -> str | None:
    """A live region of a page. None: the page has no such region. The blocks of the frame are none: they need the whole
    page."""
    found = _environment().get_template(template)
    if block not in found.blocks or block in _environment().get_template("frame.html").blocks:
        return None
    context = found.new_context(dict(values))
    return "".join(found.blocks[block](context))


def _as_time(value: datetime | str) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _ago(value: datetime | str) -> Markup:
    time = _as_time(value).astimezone(UTC)
    return _time_element(time, formatting.relative_time(time, datetime.now(UTC)), Markup(" data-ago"))


def _clock(value: datetime | str) -> Markup:
    """The time of the day alone, for logs and live pages."""
    time = _as_time(value).astimezone(UTC)
    return _time_element(time, f"{time:%H:%M:%S}")


def _day(value: datetime | str) -> Markup:
    time = _as_time(value).astimezone(UTC)
    return _time_element(time, f"{time.day} {time:%b}")


def _moment(value: datetime | str) -> Markup:
    """When something was recorded."""
    time = _as_time(value).astimezone(UTC)
    return _time_element(time, formatting.moment(time, datetime.now(UTC)))


def _time_element(time: datetime, text: str, more: Markup = EMPTY) -> Markup:
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(
        time.isoformat().replace("+00:00", "Z"), formatting.absolute_time(time), more, text
    )


def _link(path: str, query: Mapping[str, object] | list[tuple[str, object]] | None = None, **more: object) -> str:
    """A path with a query; parameters without a value are left out."""
    pairs = [*(query.items() if isinstance(query, Mapping) else query or ()), *more.items()]
    given = [(name, value) for name, value in pairs if value not in (None, "")]
    return f"{path}?{urlencode(given)}" if given else path
