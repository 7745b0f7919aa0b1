"""Forms and lists of nouns that need no page of their own design: a noun declares its columns and fields.

A form posts to its own address. What was typed is shown again beside the faults of the API; nothing is checked here but
whether a text can be read as a value at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from sys import float_info
from typing import Any, Literal

import msgspec

from mainstay.control.access import ACCESS, relation_of
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.operations.machinery.bounds import exceeds
from mainstay.control.web.contract import ApiRefusal, NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.foundation.documents import read_yaml
from mainstay.foundation.faults import DoesNotLoad

PAGE_SIZE = "50"
# More rows are not offered as choices: the field takes an id instead.
MOST_CHOICES = 100
IRREMOVABLE = "cannot be removed; give another value"
# Reading YAML costs a second for 500,000 characters or so.
MAX_DOCUMENT = 200_000
MAX_EXPANDED_CHARACTERS = 4 * 1024 * 1024
# Of each list that a required choice reads: the noun of the access table, and the form that creates its first row.
CREATION = {
    "/api/v1/agent-types": ("agent_type", "/agent-types/new"),
    "/api/v1/participants": ("participant", "/participants/new"),
    "/api/v1/service-option-types": ("service_option_type", "/option-types/new"),
    "/api/v1/service-pool-sets": ("service_pool_set", "/pool-sets/new"),
}
LARGEST_DOUBLE = float_info.max

FieldKind = Literal[
    "text", "line", "code", "long", "document", "number", "flag", "choice", "choices", "words", "time"
]
Typed = dict[str, str | list[str]]
Row = Mapping[str, Any]
Act = Callable[[PageCall], Awaitable[PageAnswer]]
# What follows a form; gets the answer of the API.
Done = Callable[[PageCall, Any], PageAnswer]


@dataclass(frozen=True, slots=True)
class NounField:
    """`name` is the member of the body. A `line` may be empty. A `document` is JSON or YAML; `words` are separated by
    commas or lines."""

    name: str
    label: str
    kind: FieldKind = "text"
    hint: str = ""
    required: bool = False
    # (value, label) of a choice.
    choices: Sequence[tuple[str, str]] = ()
    # What a text area shows at once.
    lines: int = 6
    # Of a new row, unless a link fills in the field.
    default: str = ""
    # Whether an empty field is sent as null, which unsets the member; otherwise it is not sent.
    unsets: bool = False
    # The form that creates the first choice, if the caller may use it.
    creation: str = ""


@dataclass(frozen=True, slots=True)
class NounFault:
    path: str
    message: str
    # The id of the field in the page; "": the fault belongs to no field.
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class NounForm:
    title: str
    button: str
    fields: Sequence[NounField]
    # (href, label) of the pages above.
    crumbs: Sequence[tuple[str, str]]
    explanation: str = ""
    # Members of the body that the user does not choose.
    fixed: Mapping[str, Any] = field(default_factory=dict)
    delete_href: str = ""
    delete_word: str = "Delete"
    # Ticks that are parameters of the query instead of members of the body.
    options: Sequence[NounField] = ()
    # (field, message) of each fault that the API would report without naming a field of the form.
    check: Callable[[Mapping[str, Any]], list[tuple[str, str]]] = lambda _body: []
    # Makes the body of the request from the values of the fields.
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Asks before something is done that cannot be undone. `effects` are sentences."""

    title: str
    button: str
    effects: Sequence[str]
    crumbs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ConfirmedRequest:
    """What the button of a confirmation sends to the API, and where the browser goes then."""

    method: str
    path: str
    redirect: str
    notice: str
    body: object = None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """`read` returns what the kind of cell shows: a text, a time, a number, a list of texts, (kind, word) of a state,
    or (address, text) of a link; None: an empty cell. An `action` is a link that is shown if the row may be changed."""

    label: str
    read: Callable[[Row], Any]
    kind: Literal["text", "code", "time", "number", "chips", "state", "link", "action"] = "text"
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NounPages:
    """A noun with a list, and with forms to create, change and delete. `noun` is its row of the access table."""

    noun: str
    word: str
    plural: str
    path: str
    api: str
    explanation: str
    columns: Sequence[TableColumn]
    # The fields of a form; without a row, of a new one.
    fields: Callable[[PageCall, Row | None], Awaitable[Sequence[NounField]]]
    # What a deletion does, in sentences.
    effects: Callable[[Row], Sequence[str]]
    navigation: NavigationEntry | None = None
    # The action of the access table that changes a row.
    change: str = "write"
    # Of the list; the noun before the dot of its events.
    topics: str = ""
    sort: str = "name"
    # Whether a row has a page of its own; otherwise its name leads to the form that changes it.
    detail: bool = False
    # Where a browser goes after a form. None: to the page of the row, or to the list.
    home: Callable[[Row], str] | None = None
    # Adds members to the rows of the list.
    complete: Callable[[PageCall, list[Any]], Awaitable[list[Any]]] | None = None
    # Members of a new row that the user does not choose.
    fixed: Callable[[PageCall], Mapping[str, Any]] = lambda _call: {}
    # Query parameters of the list that other pages link with.
    filters: Sequence[str] = ()
    delete_word: str = "Delete"
    # Above the form of a new row.
    new_explanation: str = ""
    # Links beside the title: (href, label).
    related: Sequence[tuple[str, str]] = ()

    @property
    def title(self) -> str:
        return self.plural[:1].upper() + self.plural[1:]

    def crumbs(self, row: Row | None = None) -> Sequence[tuple[str, str]]:
        above = ((self.path, self.title),)
        if row is None:
            return above
        if self.home is not None:
            return (*above, (self.home(row), "Back"))
        return (*above, (f"{self.path}/{row['id']}", row["name"])) if self.detail else above

    def target(self, row: Row) -> str:
        if self.home is not None:
            return self.home(row)
        return f"{self.path}/{row['id']}" if self.detail else self.path


def may(call: PageCall, noun: str, action: str = "write") -> bool:
    """Whether the role of the caller may do this to some row. The API decides about each row."""
    return not call.caller.read_only and call.caller.role in ACCESS[noun, action]


def may_row(call: PageCall, noun: str, row: Row, action: str = "write") -> bool:
    """Whether the access table lets the caller do this to a row of the API."""
    if not may(call, noun, action):
        return False
    relation = relation_of(call.caller, noun, action)
    return relation.everything or any(
        row.get(wire_name(column)) == call.caller.id_of(whose) for column, whose in relation.owners
    )


def wire_name(column: str) -> str:
    head, *rest = column.split("_")
    return head + "".join(part.capitalize() for part in rest)


async def choices_field(call: PageCall, name: str, label: str, api: str, hint: str = "") -> NounField:
    """Ticks for rows of another noun; with more than MOST_CHOICES of them, a field for their ids."""
    found = await reference_field(call, name, label, api)
    if found.kind == "choice":
        return NounField(name, label, "choices", hint, choices=found.choices)
    return NounField(name, label, "words", f"{hint} Ids, separated by commas.".strip())


async def reference_field(
    call: PageCall, name: str, label: str, api: str, *, required: bool = False, query: Sequence[tuple[str, str]] = ()
) -> NounField:
    """A choice among rows of another noun; with more than MOST_CHOICES of them, a field for the id."""
    wanted = [("pageSize", str(MOST_CHOICES)), ("sort", "name"), ("after", ""), *query]
    page = await call.api("GET", api, query=wanted)
    if page["hasNext"]:
        return NounField(name, label, "code", f"The id of the {label.lower()}.", required)
    rows = [(each["id"], each["name"]) for each in page["items"]]
    noun, creation = CREATION.get(api, ("", ""))
    creation = creation if creation and may(call, noun) else ""
    return NounField(name, label, "choice", required=required, choices=rows, creation=creation)


async def owner_field(call: PageCall, name: str, label: str, *, required: bool = True) -> list[NounField]:
    """The choice of the participant that owns a new row. Only for admins: a participant owns what it creates."""
    if call.caller.participant_id is not None:
        return []
    return [await reference_field(call, name, label, "/api/v1/participants", required=required)]


def own_member(call: PageCall, name: str) -> dict[str, str]:
    """The member of a new row that names the caller as its owner. Empty for admins, who choose one."""
    return {} if call.caller.participant_id is None else {name: call.caller.participant_id}


async def names_of(call: PageCall, api: str, ids: Iterable[str | None]) -> dict[str, str]:
    """The names of rows of another noun by id, as far as the caller may read them."""
    wanted = [("id", each) for each in sorted({each for each in ids if each})]
    if not wanted:
        return {}
    found = await call.api("GET", api, query=[("pageSize", "100"), *wanted])
    return {each["id"]: each["name"] for each in found["items"]}


def _typed_row(fields: Sequence[NounField], row: Row) -> Typed:
    """A stored row as the texts of a form."""
    return {each.name: _typed_value(each, row.get(each.name)) for each in fields}


def _typed_value(wanted: NounField, value: Any) -> str | list[str]:
    if wanted.kind == "choices":
        return list(value or ())
    if value is None:
        return ""
    if wanted.kind == "words":
        return ", ".join(value)
    if wanted.kind == "flag":
        return "true" if value else ""
    if wanted.kind == "document":
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if wanted.kind == "time":
        return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%dT%H:%M")
    return str(value)


def _typed_form(call: PageCall, fields: Sequence[NounField]) -> Typed:
    return {
        each.name: [value for name, value in call.form if name == each.name]
        if each.kind == "choices"
        else call.typed(each.name)
        for each in fields
    }


def _read_body(fields: Sequence[NounField], typed: Typed) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The body of the request, and (field, message) of each text that cannot be read."""
    body: dict[str, Any] = {}
    faults: list[tuple[str, str]] = []
    for each in fields:
        text = typed[each.name]
        try:
            value = _read_value(each, text)
        except ValueError as error:
            faults.append((each.name, str(error)))
            continue
        if value is not None or each.unsets:
            body[each.name] = value
    return body, faults


def _read_value(wanted: NounField, text: str | list[str]) -> Any:
    """None: the field is empty, so that the member is not given."""
    if isinstance(text, list):
        return text
    text = text if wanted.kind == "long" else text.strip()
    if wanted.required and not text:
        # The API names the fault.
        return ""
    if wanted.kind == "flag":
        return text == "true"
    if wanted.kind == "words":
        return [word for line in text.splitlines() for part in line.split(",") if (word := part.strip())]
    if wanted.kind in ("long", "line"):
        return text
    if not text:
        return None
    if wanted.kind == "document":
        return read_document(text)
    if wanted.kind == "number":
        return _read_number(text)
    if wanted.kind == "time":
        return _read_time(text)
    return text


def _read_time(text: str) -> str:
    """In UTC, as in the label, with or without seconds."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a time such as 2026-01-31T12:00") from None
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time).isoformat()


def _read_number(text: str) -> int | float:
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        if -LARGEST_DOUBLE <= number <= LARGEST_DOUBLE:
            return number
    raise ValueError("must be a number")


def read_document(text: str) -> Any:
    """JSON or YAML. Raises ValueError with the place of the first fault."""
    if len(text) > MAX_DOCUMENT:
        raise ValueError(f"has more than {MAX_DOCUMENT:,} characters; send it to the API instead")
    try:
        value = read_yaml(text, "line")
    except DoesNotLoad as refusal:
        first = refusal.faults[0]
        raise ValueError(f"line {first.line}: {first.message}") from None
    if exceeds(value, MAX_EXPANDED_CHARACTERS):
        raise ValueError(f"is larger than {MAX_EXPANDED_CHARACTERS} characters once its aliases are expanded")
    return value


def _located(fields: Sequence[NounField], faults: Sequence[tuple[str, str]]) -> list[NounFault]:
    """Each fault at its field: a path such as `tags[2]` or `configuration.port` belongs to its first member."""
    names = {each.name for each in fields}
    found = []
    for path, message in faults:
        head = path.partition(".")[0].partition("[")[0]
        found.append(NounFault(path, message, f"f-{head}" if head in names else ""))
    return found


def _show_form(
    call: PageCall,
    form: NounForm,
    typed: Typed,
    *,
    faults: Sequence[tuple[str, str]] = (),
    refusal: str = "",
    status: int = 200,
) -> PageAnswer:
    values = {"form": form, "typed": typed, "faults": _located(form.fields, faults), "refusal": refusal}
    return PageAnswer("noun_form.html", {**values, "action": call.url}, status=status)


async def _send_form(
    call: PageCall,
    form: NounForm,
    method: str,
    path: str,
    done: Done,
    *,
    stored: Typed | None = None,
) -> PageAnswer:
    """Sends what was typed to the API; of a stored row, what differs. A refusal shows the form again, as typed."""
    typed = _typed_form(call, form.fields)
    changed = [each for each in form.fields if stored is None or not _is_same(stored[each.name], typed[each.name])]
    # In a thread: reading large documents would block the event loop.
    body, unreadable = await asyncio.to_thread(_read_body, changed, typed)
    if stored is not None:
        unreadable += [(each.name, IRREMOVABLE) for each in changed if _cannot_be_sent(each, typed, body)]
    if faults := [*unreadable, *form.check(body)]:
        return _show_form(call, form, typed, faults=faults, status=400)
    query = [(each.name, "true") for each in form.options if call.posted(each.name) == "true"]
    try:
        answer = await call.api(method, path, {**form.prepare(body), **form.fixed}, query=query)
    except ApiRefusal as refusal:
        if refusal.status in (401, 404, 429) or refusal.status >= 500:
            raise
        return _show_form(
            call,
            form,
            typed,
            faults=refusal.faults,
            refusal="" if refusal.faults else str(refusal),
            status=refusal.status,
        )
    return done(call, answer)


def _is_same(stored: str | list[str], typed: str | list[str]) -> bool:
    if isinstance(stored, list) or isinstance(typed, list):
        return sorted(stored) == sorted(typed)
    return stored.strip() == typed.strip()


def _cannot_be_sent(wanted: NounField, typed: Typed, body: Mapping[str, Any]) -> bool:
    """In the body of a change null means not given."""
    text = typed[wanted.name]
    return isinstance(text, str) and not text.strip() and wanted.name not in body


def show_confirmation(
    call: PageCall, confirmation: Confirmation, *, refusal: str = "", status: int = 200
) -> PageAnswer:
    values = {"confirmation": confirmation, "refusal": refusal, "action": call.url}
    return PageAnswer("noun_confirm.html", values, status=status)


def form_pages(path: str, access: tuple[str, str], show: Act, send: Act) -> tuple[WebPage, WebPage]:
    """A form is not shown to a token that may only read."""
    return (
        WebPage(method="GET", path=path, act=show, access=access, only_reads=False),
        WebPage(method="POST", path=path, act=send, access=access),
    )


def creation_pages(
    path: str,
    access: tuple[str, str],
    make_form: Callable[[PageCall], Awaitable[NounForm]],
    api: str,
    done: Done,
) -> tuple[WebPage, WebPage]:
    """The form of a new row, and what its button does."""

    async def show(call: PageCall) -> PageAnswer:
        form = await make_form(call)
        # A link may fill in fields.
        typed: Typed = {
            each.name: [] if each.kind == "choices" else call.asked(each.name, each.default) for each in form.fields
        }
        return _show_form(call, form, typed)

    async def send(call: PageCall) -> PageAnswer:
        return await _send_form(call, await make_form(call), "POST", api, done)

    return form_pages(path, access, show, send)


def change_pages(
    path: str,
    access: tuple[str, str],
    make_form: Callable[[PageCall], Awaitable[tuple[Row, NounForm]]],
    api: str,
    done: Done,
) -> tuple[WebPage, WebPage]:
    """The form of a stored row, and what its button does."""

    async def show(call: PageCall) -> PageAnswer:
        row, form = await make_form(call)
        return _show_form(call, form, _typed_row(form.fields, row))

    async def send(call: PageCall) -> PageAnswer:
        row, form = await make_form(call)
        stored = _typed_row(form.fields, row)
        return await _send_form(call, form, "PATCH", f"{api}/{row['id']}", done, stored=stored)

    return form_pages(path, access, show, send)


def confirmed_pages(
    path: str,
    access: tuple[str, str],
    confirm: Callable[[PageCall], Awaitable[tuple[Confirmation, ConfirmedRequest]]],
) -> tuple[WebPage, WebPage]:
    """The page that asks, and the request of its button. A refusal is shown on the page."""

    async def show(call: PageCall) -> PageAnswer:
        return show_confirmation(call, (await confirm(call))[0])

    async def send(call: PageCall) -> PageAnswer:
        confirmation, request = await confirm(call)
        try:
            await call.api(request.method, request.path, request.body)
        except ApiRefusal as refusal:
            if refusal.status not in (400, 403, 409):
                raise
            return show_confirmation(call, confirmation, refusal=str(refusal), status=refusal.status)
        return PageAnswer(redirect=request.redirect, notice=request.notice)

    return form_pages(path, access, show, send)


def noun_pages(noun: NounPages) -> tuple[WebPage, ...]:
    """The list and the forms of a noun."""

    def done(word: str) -> Done:
        return lambda _call, row: PageAnswer(
            redirect=noun.target(row), notice=f"{noun.word.capitalize()} {row['name']} is {word}"
        )

    write = (noun.noun, "write")
    return (
        WebPage(
            method="GET",
            path=noun.path,
            act=lambda call: _list(noun, call),
            access=(noun.noun, "read"),
            navigation=noun.navigation,
        ),
        *creation_pages(f"{noun.path}/new", write, lambda call: _new_form(noun, call), noun.api, done("created")),
        *change_pages(
            f"{noun.path}/{{id}}/edit",
            (noun.noun, noun.change),
            lambda call: _change_form(noun, call),
            noun.api,
            done("saved"),
        ),
        *confirmed_pages(f"{noun.path}/{{id}}/delete", write, lambda call: _confirm_deletion(noun, call)),
    )


async def _list(noun: NounPages, call: PageCall) -> PageAnswer:
    name, after = call.asked("name"), call.asked("after")
    filters = [(each, call.asked(each)) for each in noun.filters if call.asked(each)]
    query = [("name", name), ("after", after), ("sort", noun.sort), ("pageSize", PAGE_SIZE), *filters]
    page = await call.api("GET", noun.api, query=query)
    items = page["items"] if noun.complete is None else await noun.complete(call, page["items"])
    values = {
        "noun": noun,
        "rows": [_shown_row(noun, call, row) for row in items],
        "older": page.get("next"),
        "name": name,
        "after": after,
        "filters": filters,
        "may_create": may(call, noun.noun),
    }
    return PageAnswer("noun_list.html", values)


def _shown_row(noun: NounPages, call: PageCall, row: Row) -> dict[str, Any]:
    href, may_change = f"{noun.path}/{row['id']}", may_row(call, noun.noun, row, noun.change)
    if not noun.detail:
        href = f"{href}/edit" if may_change else ""
    cells = [each.read(row) if each.kind != "action" or may_change else None for each in noun.columns]
    return {"href": href, "cells": cells}


async def _new_form(noun: NounPages, call: PageCall) -> NounForm:
    fields = await noun.fields(call, None)
    title, button = f"New {noun.word}", f"Create the {noun.word}"
    return NounForm(title, button, fields, noun.crumbs(), noun.new_explanation, fixed=noun.fixed(call))


async def _find_to_write(noun: NounPages, call: PageCall, action: str) -> Any:
    row = await call.api("GET", f"{noun.api}/{call.path['id']}")
    if not may_row(call, noun.noun, row, action):
        raise HttpRefusal(403, "forbidden", f"you may read {noun.word} {row['name']}, but not change it")
    return row


async def _change_form(noun: NounPages, call: PageCall) -> tuple[Row, NounForm]:
    row = await _find_to_write(noun, call, noun.change)
    deletion = f"{noun.path}/{row['id']}/delete" if may_row(call, noun.noun, row) else ""
    fields = await noun.fields(call, row)
    return row, NounForm(
        f"Change {row['name']}",
        "Save",
        fields,
        noun.crumbs(row),
        delete_href=deletion,
        delete_word=noun.delete_word,
    )


async def _confirm_deletion(noun: NounPages, call: PageCall) -> tuple[Confirmation, ConfirmedRequest]:
    row = await _find_to_write(noun, call, "write")
    title, button = f"{noun.delete_word} {noun.word} {row['name']}", f"{noun.delete_word} the {noun.word}"
    target = noun.path if noun.home is None else noun.home(row)
    notice = f"{noun.word.capitalize()} {row['name']} is {noun.delete_word.lower()}d"
    request = ConfirmedRequest("DELETE", f"{noun.api}/{row['id']}", target, notice)
    return Confirmation(title, button, noun.effects(row), noun.crumbs(row)), request
