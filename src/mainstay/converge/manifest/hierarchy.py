"""Merges the data of a host: the manifest's own, then the overrides that its hierarchy names. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mainstay.foundation import Any

FIRST, DEEP = "first", "deep"
DEFAULT_LEVEL = ("default", "default")


class DataLayer(dict[str, "Any"]):
    """Data from outside the manifest. `origin` names where it comes from, for faults."""

    def __init__(self, values: Mapping[str, Any], origin: str) -> None:
        super().__init__(values)
        self.origin = origin


class Hierarchy:
    """How the data of a manifest came about, for `validate` and `-v`."""

    __slots__ = ("levels", "merge", "overrides")

    def __init__(self) -> None:
        # Entries of `hierarchy.order`: as written, and as rendered; None if a fact is missing.
        self.levels: list[tuple[str, str | None]] = []
        self.overrides: Mapping[str, Mapping[str, Any]] = {}
        self.merge = FIRST

    def used(self) -> list[str]:
        """The overrides that apply on this host, in order."""
        levels = self.levels or [DEFAULT_LEVEL]
        found = list(dict.fromkeys(level for _, level in levels if level is not None and level in self.overrides))
        return found[:1] if self.merge == FIRST else found

    def notes(self) -> list[str]:
        used = self.used()
        return [f"overrides used: {', '.join(used) or 'none'}"] if self.overrides else []

    def warnings(self) -> list[str]:
        return [*self._unmatched(), *self._flipped()]

    def _unmatched(self) -> Iterator[str]:
        """Overrides that no level can name, whatever the facts are."""
        import re

        from mainstay.converge.manifest.expressions import split
        from mainstay.foundation.suggestions import did_you_mean

        levels = self.levels or [DEFAULT_LEVEL]
        patterns = [
            "".join(re.escape(part) if isinstance(part, str) else ".*" for part in split(written))
            for written, _ in levels
        ]
        for key in self.overrides:
            if not any(re.fullmatch(pattern, key, re.DOTALL) for pattern in patterns):
                known = [level for _, level in levels if level is not None]
                yield f"override {key!r} matches no level of hierarchy.order{did_you_mean(key, known)}"

    def _flipped(self) -> Iterator[str]:
        """A general level, which has no expression, that replaces values of a level for some hosts before it."""
        if self.merge != DEEP:
            return
        specific: dict[str, Mapping[str, Any]] = {}
        for written, level in self.levels:
            if level is None or level not in self.overrides:
                continue
            if "{{" in written:
                specific[level] = self.overrides[level]
                continue
            for earlier, values in specific.items():
                key = _replaced_key(values, self.overrides[level])
                if key is not None:
                    yield (
                        f"hierarchy.merge is `deep`, where later levels win: {level!r} replaces {key} of {earlier!r};"
                        f" list {level!r} before the levels with expressions"
                    )


def _replaced_key(under: Mapping[str, Any], over: Mapping[str, Any]) -> str | None:
    """The first value, by its path, that a deep merge replaces by another value."""
    for key, value in over.items():
        existing = under.get(key, value)
        if isinstance(existing, dict) and isinstance(value, dict):
            below = _replaced_key(existing, value)
            if below is not None:
                return f"{key}.{below}"
        elif existing != value and not (isinstance(existing, list) and isinstance(value, list)):
            return key
    return None


def apply_hierarchy(
    base: Mapping[str, Any], overrides: Mapping[str, Mapping[str, Any]], order: Sequence[str], merge: str
) -> dict[str, Any]:
    """`first`: the first override that exists, merged shallowly. `deep`: all of them, later wins."""
    chosen = dict(base)
    for key in order:
        if key not in overrides:
            continue
        if merge == FIRST:
            return {**chosen, **overrides[key]}
        chosen = merge_deep(chosen, overrides[key])
    return chosen


def merge_deep(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merges maps key by key, concatenates lists, and replaces anything else."""
    merged = dict(under)
    for key, value in over.items():
        existing = merged.get(key)
        if isinstance(existing, dict) and isinstance(value, dict):
            merged[key] = merge_deep(existing, value)
        elif isinstance(existing, list) and isinstance(value, list):
            merged[key] = existing + value
        else:
            merged[key] = value
    return merged


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Like `merge_deep`, but a later list replaces an earlier list, as with `--data` and `--set`."""
    # A map whose items also have a number stays one.
    kind: type[dict[str, Any]] = type(under) if hasattr(under, "item_at") else dict  # type: ignore[assignment]
    merged = kind(under)
    for key, value in over.items():
        existing = merged.get(key)
        merged[key] = overlay(existing, value) if isinstance(existing, dict) and isinstance(value, dict) else value
    return merged


def nest(key: str, value: Any) -> dict[str, Any]:
    """`a.b` = 1 as {a: {b: 1}}."""
    *above, last = key.split(".")
    nested: dict[str, Any] = {last: value}
    for part in reversed(above):
        nested = {part: nested}
    return nested
