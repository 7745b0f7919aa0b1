"""Nouns of the control plane as values: one file declares one noun, with everything that its front ends need to know.

Rows, request bodies, verbs of the command line, kinds of plane files, lists and forms of pages derive from it. What a noun
may do and when, its rules, is in `control/operations/`. Python 3.9, without imports that a command does not need."""

from __future__ import annotations

from mainstay.foundation import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Kinds of members: a name; a name of at most 100 characters; several of those; letters, digits and underscores; a line, which may be empty;
# a text of several lines; a media type; one of some texts; a whole number; yes or no; the id of a row of another noun;
# several ids; a map; any JSON value but null. `control/store/engine/declared_structs.py` and
# `control/operations/machinery/bodies.py` have their types, each front end what it makes of them.
NAME, TAG, TAGS, WORD, LINE, TEXT, MEDIA_TYPE, CHOICE, INTEGER, BOOLEAN, ID, IDS, OBJECT, ANY = (
    "name",
    "tag",
    "tags",
    "word",
    "line",
    "text",
    "media type",
    "choice",
    "integer",
    "boolean",
    "id",
    "ids",
    "object",
    "any value",
)
# Front ends that a declaration may leave a member out of.
CLI, PLANE, FORM = "cli", "plane", "form"


class Member(Struct):
    """A member that requests set."""

    # As in the API.
    name: str
    kind: str
    # Help of its option, and description in plane files: a few words that begin with a small letter.
    meaning: str
    # In forms. Empty: made from the name.
    label: str = ""
    # Heading of its column. Empty: the label.
    heading: str = ""
    # Below its field in forms. None: the meaning, unless it is a name or a choice, which explain themselves.
    hint: str | None = None
    # At the creation.
    required: bool = False
    # Set at the creation only.
    fixed: bool = False
    # What a new row has without it. None: null.
    default: object = None
    # What the form of a new row shows. Empty: the default.
    initial: str = ""
    # Allowed texts, with the words of forms.
    choices: Mapping[str, str] = {}
    # The list of the noun whose ids it holds, as in the API: `/participants`.
    refers_to: str = ""
    # The member that people name those rows by.
    refers_by: str = "name"
    # Name of its option and of its attribute in plane files. Empty: as in the API.
    short: str = ""
    # Of the argument of `add` that sets it. Empty: an option sets it.
    argument: str = ""
    # What `true` and `false` mean, as help of the options.
    switch: tuple[str, str] = ("", "")
    # Whether lists have a column for it.
    listed: bool = True
    # Height of its field, if that is a text area.
    lines: int = 3
    # Front end → why it does not have this member, or what sets it there.
    left_out: Mapping[str, str] = {}

    @property
    def shown_label(self) -> str:
        return self.label or _spaced(self.name.removesuffix("Id")).capitalize()

    @property
    def shown_heading(self) -> str:
        return self.heading or self.shown_label

    @property
    def shown_hint(self) -> str:
        if self.hint is None:
            return "" if self.kind in (NAME, CHOICE) else f"{self.meaning[:1].upper()}{self.meaning[1:]}."
        return self.hint

    @property
    def attribute(self) -> str:
        return self.short or self.name

    @property
    def option(self) -> str:
        return f"--{_spaced(self.attribute).replace(' ', '-')}"

    @property
    def field(self) -> str:
        """The field of structs, and the column."""
        return _spaced(self.name).replace(" ", "_")

    def optional(self) -> Member:
        """The same member, which may be left out and then is null."""
        return Member(**{**vars(self), "required": False, "default": None})


def owning_participant(name: str, meaning: str, short: str) -> Member:
    """The owner of a noun. An admin names it; a participant owns what it creates."""
    return Member(name, ID, meaning, required=True, fixed=True, refers_to="/participants", short=short)


class PlaneKind(Struct):
    """A noun in plane files."""

    name: str
    description: str
    # Kinds of the names around an entry, outermost first.
    owners: tuple[str, ...] = ()
    # What messages call it. Empty: as its noun.
    word: str = ""
    # Meaning of its attribute `values`, if its rows are pools.
    values: str = ""
    # Belongs to the whole server: only admins write it.
    is_global: bool = False
    # Exists as soon as another entry is below it.
    implied: bool = False


class Noun(Struct):
    # In the access table, in events and in messages of the API: `service_group`.
    name: str
    # In messages of the command line and of plane files.
    word: str
    # Of the list in the API: `/service-groups`.
    path: str
    members: tuple[Member, ...]
    # In sentences whose subject is clear. Empty: the word.
    short: str = ""
    # The member that people name a row by.
    key: str = "name"
    # The participant that a row belongs to. None: it belongs to all.
    owner: Member | None = None
    # Of its lists.
    sort: str = "name"
    plane: tuple[PlaneKind, ...] = ()
    # Members of bodies that no front end needs → why.
    api_only: Mapping[str, str] = {}
    # Front end → why it does not have this noun.
    left_out: Mapping[str, str] = {}

    @property
    def shown(self) -> str:
        return self.short or self.word

    @property
    def all_members(self) -> tuple[Member, ...]:
        return self.members if self.owner is None else (*self.members, self.owner)

    def in_front_end(self, front_end: str) -> tuple[Member, ...]:
        """The members that a front end sets, without the owner. The key is the first."""
        found = [each for each in self.members if front_end not in each.left_out]
        return tuple(sorted(found, key=lambda each: each.name != self.key))

    def form_members(self, *, is_new: bool) -> list[Member]:
        """The members that a form sets, in its order: the name, what cannot be changed, the owner, the others."""
        members = self.in_front_end(FORM)
        first = [each for each in members if each.name == "name"]
        if is_new:
            first += [each for each in members if each.fixed and each.name != "name"]
            first += [] if self.owner is None else [self.owner]
        return [*first, *(each for each in members if not each.fixed and each.name != "name")]


def _spaced(name: str) -> str:
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name)
