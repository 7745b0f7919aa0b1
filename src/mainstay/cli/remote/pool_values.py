"""Values of pools as options write them: single values, ranges and networks. Adds and removes them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from itertools import islice
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, add_list_option
from mainstay.cli.remote.connection import find_named, list_items, short_id, word_of
from mainstay.cli.remote.removal import add_yes_option, confirm, print_outcome, remove
from mainstay.cli.views.run_display import counted
from mainstay.cli.views.tables import GOOD, age, format_value, print_table
from mainstay.foundation import Struct
from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count

MAX_VALUES = 1000
MAX_LISTED = 100_000


class PoolKind(Struct):
    """A kind of pools: its list, the list of its values, and the members of a value that name its pool and its user."""

    path: str
    values_path: str
    member: str
    user: str

    def stored_values(self, client: Client, pool: Mapping[str, Any]) -> list[Any]:
        return list_items(client, self.values_path, {self.member: pool["id"]}, MAX_LISTED)

    def add_values(self, client: Client, pool: Mapping[str, Any], values: Sequence[int | str]) -> None:
        """Adds those that the pool does not have yet."""
        known = {format_value(each["value"]) for each in self.stored_values(client, pool)}
        for value in map(str, values) if pool["propertyType"] == "string" else values:
            if format_value(value) not in known:
                body = {"name": format_value(value), "value": value, self.member: pool["id"]}
                client.post(self.values_path, body)

    def print_values(self, values: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> None:
        """`names` of the users by id."""
        if not values:
            return
        print()
        print_table(
            ("VALUE", "NAME", self.user.removesuffix("Id").upper(), "PROPERTY", "SINCE"),
            [
                [
                    format_value(each["value"]),
                    each["name"],
                    names.get(each[self.user], short_id(each[self.user])) if each[self.user] else ("free", GOOD),
                    each["propertyName"] or "",
                    age(each["allocatedAt"]),
                ]
                for each in values
            ],
        )

    def remove(self, client: Client, arguments: argparse.Namespace, note: str) -> int:
        """Removes the pool, or with --value some of its values. `note` says what goes with the pool."""
        pool = find_named(client, self.path, arguments.name)
        if not arguments.value:
            return remove(client, arguments, self.path, pool, note)
        chosen = _named_values(arguments.value, self.stored_values(client, pool), pool["name"])
        count = counted(len(chosen), "value")
        noun = word_of(self.path)
        confirm(arguments, f"Remove {count} of {noun} {pool['name']} ({pool['id']})?")
        for value in chosen:
            client.call("DELETE", f"{self.values_path}/{value['id']}")
        return print_outcome(arguments, chosen, f"Removed {count} of {noun} {pool['name']}.")


def configure_addition(parser: argparse.ArgumentParser) -> None:
    add_argument(
        parser,
        "--value",
        "VALUE",
        "a value, a range FIRST-LAST of whole numbers or addresses, or a network ADDRESS/LENGTH",
        action="append",
        required=True,
    )


def configure_removal(parser: argparse.ArgumentParser) -> None:
    add_list_option(
        parser, "--value", "VALUE", "remove only these values: a value, a range or a network, as in `add`"
    )
    add_yes_option(parser)


def _named_values(words: list[str], found: Sequence[Any], pool: str) -> list[Any]:
    """The stored values that the words name. Refuses words that name none."""
    known = {format_value(each["value"]): each for each in found}
    # A text such as `a-b` or `10.0.0.0/28` may itself be a value.
    wanted = [text for word in words for text in ([word] if word in known else map(format_value, _expand(word)))]
    missing = [text for text in wanted if text not in known]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise CommandRefused(f"pool {pool} has no value {', '.join(missing[:5])}{more}; nothing was removed")
    return [known[text] for text in dict.fromkeys(wanted)]


def read_values(words: list[str]) -> list[int | str]:
    """Expands ranges and networks. Returns strings if any value is not a whole number."""
    found: list[int | str] = []
    for word in words:
        found += _expand(word)
        if len(found) > MAX_VALUES:
            raise CommandRefused(f"too many values: at most {MAX_VALUES} per command")
    return found if all(isinstance(value, int) for value in found) else [str(value) for value in found]


def _expand(word: str) -> list[int | str]:
    first, dash, last = word.partition("-")
    low, high = (parse_count(part, 0, LARGEST_NUMBER) for part in (first, last))
    if low is not None and high is not None:
        return list(_bounded_range(word, low, high))
    if dash and _is_address(first) and _is_address(last):
        start, end = ip_address(first), ip_address(last)
        if start.version != end.version:
            raise CommandRefused(f"--value {word} mixes IPv4 and IPv6")
        return [str(start + offset) for offset in _bounded_range(word, 0, int(end) - int(start))]
    if "/" in word and _is_address(word.partition("/")[0]):
        return _hosts_of(word)
    return [word if low is None or dash else low]


def _bounded_range(word: str, low: int, high: int) -> range:
    if high < low:
        raise CommandRefused(f"--value {word}: the range ends before it begins; write FIRST-LAST, such as 7101-7120")
    if high - low >= MAX_VALUES:
        raise CommandRefused(f"--value {word} is not a range of 1 to {MAX_VALUES} values; add it in parts")
    return range(low, high + 1)


def _hosts_of(word: str) -> list[int | str]:
    try:
        network = ip_network(word)
    except ValueError as error:
        raise CommandRefused(f"--value {word} is not a network such as 10.0.0.0/24: {error}") from None
    hosts: list[int | str] = [str(address) for address in islice(network.hosts(), MAX_VALUES + 1)]
    if len(hosts) > MAX_VALUES:
        raise CommandRefused(f"--value {word} has more than {MAX_VALUES} addresses; use a pool of type subnet")
    return hosts


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
