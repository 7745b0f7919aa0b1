"""Lists, additions and changes of plain nouns: arguments, options, bodies and tables derive from the declaration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mainstay import nouns
from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, print_json
from mainstay.cli.remote.connection import find_named, find_owner, list_items, name_of, short_id
from mainstay.cli.remote.property_options import parse_untyped
from mainstay.cli.remote.removal import add_yes_option, print_outcome, remove
from mainstay.cli.verbs import Verb
from mainstay.cli.views.tables import BAD, DIM, GOOD, Cell, age, format_value, print_table
from mainstay.foundation import Struct

METAVARS = {
    nouns.INTEGER: "N",
    nouns.NAME: "NAME",
    nouns.ID: "NAME",
    nouns.IDS: "NAME",
    nouns.TAGS: "TAG",
    nouns.OBJECT: "JSON",
    nouns.ANY: "VALUE",
}
# In the places of the arguments of a change, whose row has a name too.
NEW = "new_"


class NounVerbs(Struct):
    """The verbs of a noun. `of`: what help calls the name of a row. `suffix` of the verbs, for the second noun of a command.
    `empty`: what an empty list prints. `done`: what an addition reports."""

    noun: nouns.Noun
    of: str
    empty: str
    suffix: str = ""
    done: str = "Added"

    def addition(self, summary: str) -> Verb:
        return Verb(f"add{self.suffix}", summary, self.add, self.configure_addition)

    def change(self, summary: str) -> Verb:
        return Verb(f"change{self.suffix}", summary, self._change, self._configure_change)

    def further_changes(self, summary: str) -> tuple[Verb, ...]:
        """The verb `change` of a noun with the verb `rename`: none if a row has nothing but a name to change."""
        return (self.change(summary),) if len(self._changeable()) > 1 else ()

    def removal(self, summary: str, note: str = "") -> Verb:
        """`note` says what goes with a row."""

        def act(client: Client, arguments: argparse.Namespace) -> int:
            return remove(client, arguments, self.noun.path, self.find(client, arguments.name), note)

        def configure(parser: argparse.ArgumentParser) -> None:
            self._configure_name(parser)
            add_yes_option(parser)

        return Verb(f"remove{self.suffix}", summary, act, configure)

    def _configure_name(self, parser: argparse.ArgumentParser) -> None:
        key = "" if self.noun.key == "name" else f"{self.noun.key}, "
        add_argument(parser, "name", self.of, f"{key}name or id")

    def list_rows(self, client: Client, arguments: argparse.Namespace) -> int:
        found = list_items(client, self.noun.path, {"sort": self.noun.sort})
        if arguments.json:
            print_json(found)
        elif found:
            print_table(*self._table(client, found))
        else:
            print(self.empty)
        return 0

    def _table(self, client: Client, found: Sequence[Any]) -> tuple[list[str], list[list[Cell]]]:
        key = self.noun.key
        listed = [each for each in self.noun.all_members if each.listed and each.name != key]
        names = {each.name: _names(client, each, found) for each in listed if each.kind == nouns.ID}
        for each in self.noun.members:
            if each.kind == nouns.ID:
                found = sorted(found, key=lambda row: names[each.name].get(row[each.name], ""))
        headings = [self.of.replace("-", " "), *(each.shown_heading.upper() for each in listed), "AGE", "ID"]
        rows: list[list[Cell]] = [
            [
                row[key],
                *(_cell(each, row.get(each.name), names.get(each.name, {})) for each in listed),
                age(row["createdAt"]),
                short_id(row["id"]),
            ]
            for row in found
        ]
        return headings, rows

    # ---- additions ----
    def configure_addition(self, parser: argparse.ArgumentParser) -> None:
        members = self.noun.in_front_end(nouns.CLI)
        for each in self.noun.members:
            if each.argument:
                add_argument(parser, each.field, each.argument, _help(each))
        if self.noun.owner is not None:
            help_text = f"{self.noun.owner.meaning}; required for an admin"
            add_argument(parser, self.noun.owner.option, "PARTICIPANT", help_text, dest="owner")
        for each in members:
            if not each.argument:
                self._add_option(parser, each)

    def _add_option(self, parser: argparse.ArgumentParser, member: nouns.Member) -> None:
        help_text = _help(member)
        if member.kind == nouns.BOOLEAN:
            on, off = _switch(member)
            option = f"--{off}d" if on == "enable" else f"--{off}" if member.default else f"--{on}"
            parser.add_argument(
                option, dest=member.field, action="store_const", const=not member.default, help=help_text
            )
            return
        is_named_by_key = member.name == "name" and self.noun.key != "name"
        if is_named_by_key:
            help_text += f" (default: the {self.noun.key})"
        elif member.kind == nouns.INTEGER and member.default is not None:
            help_text += f" (default {member.default})"
        _add_valued(parser, member, member.field, help_text, required=member.required and not is_named_by_key)

    def add(self, client: Client, arguments: argparse.Namespace, body: dict[str, Any] | None = None) -> int:
        created = client.post(self.noun.path, body or self.new_body(client, arguments))
        named = f"{created[self.noun.key]} ({created['id']})"
        return print_outcome(arguments, created, f"{self.done} {self.noun.shown} {named}.")

    def new_body(self, client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
        """The body of a creation, from the arguments of `add`."""
        owner = self.noun.owner
        body: dict[str, Any] = {}
        if owner is not None:
            body[owner.name] = find_owner(client, arguments.owner, owner.shown_label.lower(), owner.option)
        for each in self.noun.in_front_end(nouns.CLI):
            written = getattr(arguments, each.field)
            if written is not None:
                body[each.name] = _value(client, each, written, each.argument or each.option)
            elif each.required:
                body[each.name] = body[self.noun.key]
        return body

    # ---- changes ----
    def _configure_change(self, parser: argparse.ArgumentParser) -> None:
        self._configure_name(parser)
        for each in self._changeable():
            destination = NEW + each.field
            if each.kind == nouns.BOOLEAN:
                either = parser.add_mutually_exclusive_group()
                for option, help_text, value in zip(_switch(each), each.switch, (True, False)):
                    either.add_argument(
                        f"--{option}", dest=destination, action="store_const", const=value, help=help_text
                    )
            elif each.kind == nouns.INTEGER:
                _add_valued(parser, each, destination, each.meaning)
            else:
                _add_valued(parser, each, destination, f"new {_word(each)}{_forms(each)}")

    def _changeable(self) -> list[nouns.Member]:
        return [each for each in self.noun.in_front_end(nouns.CLI) if not each.fixed]

    def _change(self, client: Client, arguments: argparse.Namespace) -> int:
        members = self._changeable()
        given = {each.name: getattr(arguments, NEW + each.field) for each in members}
        body = {
            each.name: _value(client, each, given[each.name], each.option)
            for each in members
            if given[each.name] is not None
        }
        if not body:
            *first, last = [option for each in members for option in _options(each)]
            raise CommandRefused(f"nothing to change: use {', '.join(first)}{' or ' if first else ''}{last}")
        row = self.find(client, arguments.name)
        changed = client.call("PATCH", f"{self.noun.path}/{row['id']}", body)
        return print_outcome(arguments, changed, f"Changed {self.noun.shown} {changed[self.noun.key]}.")

    def find(self, client: Client, word: str) -> Any:
        return _find(client, self.noun.path, self.noun.key, word)


def _find(client: Client, path: str, key: str, word: str) -> Any:
    """By its key, which is unique unless it is the name; else by its name or id."""
    found = [] if key == "name" else list_items(client, path, {key: word})
    return found[0] if len(found) == 1 else find_named(client, path, word)


def _names(client: Client, member: nouns.Member, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Names of the rows that a column refers to: those that the rows have embedded, or else those of the list."""
    embedded = member.name[:-2]
    if embedded in rows[0]:
        return {row[member.name]: name_of(row, embedded) for row in rows if row[member.name]}
    return {each["id"]: each[member.refers_by] for each in list_items(client, member.refers_to)}


def _cell(member: nouns.Member, value: Any, names: Mapping[str, str]) -> Cell:
    if value is None:
        return ""
    if member.kind == nouns.BOOLEAN:
        on, off = _switch(member)
        return (f"{on}d", GOOD) if value else (f"{off}d", DIM)
    if member.kind == nouns.ID:
        return names.get(value) or short_id(value)
    if member.kind == nouns.CHOICE and member.default is not None:
        return (str(value), GOOD if value == member.default else BAD)
    return format_value(value)


def _help(member: nouns.Member) -> str:
    if member.kind == nouns.BOOLEAN:
        return f"{member.switch[1]} yet" if member.default else member.switch[0]
    return member.meaning + _forms(member)


def _word(member: nouns.Member) -> str:
    return member.shown_label.lower()


def _forms(member: nouns.Member) -> str:
    return ": JSON, or text" if member.kind == nouns.ANY else ""


def _switch(member: nouns.Member) -> tuple[str, str]:
    """The options that say yes and no."""
    return ("enable", "disable") if member.name == "enabled" else (member.option[2:], f"no-{member.option[2:]}")


def _options(member: nouns.Member) -> Iterator[str]:
    if member.kind == nouns.BOOLEAN:
        yield from (f"--{each}" for each in _switch(member))
    else:
        yield member.option


def _add_valued(
    parser: argparse.ArgumentParser,
    member: nouns.Member,
    destination: str,
    help_text: str,
    *,
    required: bool = False,
) -> None:
    if member.choices:
        more: dict[str, Any] = {"choices": list(member.choices)}
    else:
        more = {"metavar": METAVARS.get(member.kind) or member.argument or "TEXT"}
    if member.kind == nouns.INTEGER:
        more["type"] = int
    elif member.kind in (nouns.IDS, nouns.TAGS):
        more["action"] = "append"
    parser.add_argument(member.option, dest=destination, help=help_text, required=required, **more)


def _value(client: Client, member: nouns.Member, written: Any, place: str) -> Any:
    if member.kind in (nouns.ANY, nouns.OBJECT):
        return parse_untyped(written, place)
    if member.kind == nouns.ID:
        return _find(client, member.refers_to, member.refers_by, written)["id"]
    if member.kind == nouns.IDS:
        return [_find(client, member.refers_to, member.refers_by, each)["id"] for each in written]
    return written
