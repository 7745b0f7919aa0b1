"""Lists service options: the values that a provider offers for a property, such as its images or sizes.

`options add OPTION-TYPE NAME VALUE` adds an option, VALUE as JSON or text; `options change` changes it, `options remove`
removes it. A disabled option is not offered; services that use it stay. An admin names the provider with --provider.
Option types are shared by all providers and written by admins: `options types`, `add-type`, `change-type`, `remove-type`."""

from __future__ import annotations

import argparse

from mainstay.cli.remote.noun_verbs import NounVerbs
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.nouns import service_option_types, service_options

SUMMARY = "list, add, change or remove service options and their types"
GROUP = "operate"
OPTIONS = NounVerbs(
    service_options.NOUN,
    "OPTION",
    "There is no option yet; `mainstay options add OPTION-TYPE NAME VALUE` adds one.",
)
TYPES = NounVerbs(
    service_option_types.NOUN,
    "OPTION-TYPE",
    "There is no option type yet; `mainstay options add-type OPTION-TYPE` adds one.",
    suffix="-type",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        OPTIONS.list_rows,
        OPTIONS.addition("add an option"),
        OPTIONS.change("change an option"),
        OPTIONS.removal("remove an option", "Services that use it stay."),
        Verb("types", "list the option types", TYPES.list_rows),
        TYPES.addition("add an option type"),
        TYPES.change("change an option type"),
        TYPES.removal("remove an option type without options"),
    )


run = run_verb
