"""Random schemas, and random properties that more or less fit them, for property-based tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d")
STATES = ("New", "Stopped", "Started")
# Every text given to a secret property contains this, so that tests can search for it everywhere.
CANARY = "canary-7f3a"
POOL = "ip"

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, 4.0, 2.0, -1.5, 10**30]),
    st.sampled_from(["", "a", "ab", "abc", "日本", "x-1", "vault://stolen"]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=6,
)


def rule(name: str, **config: Any) -> dict[str, Any]:
    return {"type": name, "config": config}


def validators_for(kind: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """No validator contradicts another, so every drawn schema is valid."""
    enums = st.builds(
        lambda values: rule("enum", values=values),
        st.lists(scalars.filter(lambda v: v is not None), min_size=1, max_size=4),
    )
    by_kind: dict[str, list[st.SearchStrategy[dict[str, Any]]]] = {
        "string": [
            st.builds(lambda n: rule("minLength", value=n), st.integers(0, 2)),
            st.builds(lambda n: rule("maxLength", value=n), st.integers(2, 4)),
            st.sampled_from([rule("pattern", pattern="^[a-z]+$"), rule("pattern", pattern="b")]),
        ],
        "integer": [
            st.builds(lambda n: rule("min", value=n), st.integers(-2, 2)),
            st.builds(lambda n: rule("max", value=n), st.integers(3, 9)),
        ],
        "array": [
            st.builds(lambda n: rule("minItems", value=n), st.integers(0, 1)),
            st.builds(lambda n: rule("maxItems", value=n), st.integers(1, 3)),
            st.just(rule("uniqueItems", value=True)),
        ],
    }
    by_kind["number"] = by_kind["integer"]
    return st.lists(st.one_of(*by_kind.get(kind, []), enums), max_size=2, unique_by=lambda each: str(each["type"]))


@st.composite
def definitions(draw: st.DrawFn, *, depth: int = 2, plain: bool = False, in_items: bool = False) -> dict[str, Any]:
    """`plain` leaves out what JSON Schema cannot express: actors, states, secrets, pools and generators."""
    kinds = ["string", "integer", "number", "boolean", "json", *(["object", "array"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    definition: dict[str, Any] = {"type": kind, "validators": draw(validators_for(kind))}
    if draw(st.booleans()):
        definition["required"] = draw(st.booleans())
    if kind == "object" and draw(st.booleans()):
        definition["properties"] = draw(members(depth=depth - 1, plain=plain, in_items=in_items))
    if kind == "array" and draw(st.booleans()):
        definition["items"] = draw(definitions(depth=depth - 1, plain=plain, in_items=True))
    if not plain:
        draw_policies(draw, kind, definition, in_items=in_items)
    return definition


def draw_policies(draw: st.DrawFn, kind: str, definition: dict[str, Any], *, in_items: bool) -> None:
    if draw(st.booleans()):
        definition["immutable"] = True
    actors = draw(st.sampled_from([None, None, ["user"], ["agent"], ["system"], ["user", "agent"]]))
    if actors:
        definition["authorizers"] = [rule("actor", actors=actors)]
    if draw(st.integers(0, 3)) == 0:
        definition["authorizers"] = [*definition.get("authorizers", []), rule("state", allowedStates=["Stopped"])]
    if kind in ("string", "integer", "json") and draw(st.integers(0, 2)) == 0:
        definition["secret"] = {"type": draw(st.sampled_from(["persistent", "ephemeral"]))}
    elif kind == "string" and draw(st.integers(0, 3)) == 0:
        choices = [rule("uuid"), rule("timestamp"), *([] if in_items else [rule("pool", poolType=POOL)])]
        definition["generator"] = draw(st.sampled_from(choices))
        definition["validators"] = []


def members(*, depth: int = 2, plain: bool = False, in_items: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(
        st.sampled_from(NAMES), definitions(depth=depth, plain=plain, in_items=in_items), min_size=1, max_size=3
    )


@st.composite
def values_for(draw: st.DrawFn, definition: dict[str, Any]) -> Any:
    """Mostly a value of the right type, sometimes any value; values of secrets contain the canary."""
    if "secret" in definition:
        return draw(st.sampled_from([CANARY, f"{CANARY}-2", {"inside": [CANARY]}, CANARY * 3, 7]))
    if draw(st.integers(0, 7)) == 0:
        return draw(anything)
    match definition["type"]:
        case "string":
            return draw(st.sampled_from(["", "a", "ab", "abc", "日本", "10.0.0.1", "abcdef"]))
        case "integer":
            return draw(st.one_of(st.integers(-3, 12), st.sampled_from([4.0, 10**30])))
        case "number":
            return draw(st.one_of(st.integers(-3, 12), st.sampled_from([0.5, 4.0, -1.5])))
        case "boolean":
            return draw(st.booleans())
        case "object" if "properties" in definition:
            return draw(properties_for(definition["properties"]))
        case "object":
            return draw(st.dictionaries(st.sampled_from(NAMES), anything, max_size=2))
        case "array" if "items" in definition:
            return draw(st.lists(values_for(definition["items"]), max_size=3))
        case "array":
            return draw(st.lists(anything, max_size=3))
        case _:
            return draw(anything)


@st.composite
def properties_for(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    given = {}
    for name, definition in schema.items():
        if draw(st.integers(0, 4)):
            given[name] = None if draw(st.integers(0, 7)) == 0 else draw(values_for(definition))
    if draw(st.integers(0, 15)) == 0:
        given["unknown"] = draw(anything)
    return given
