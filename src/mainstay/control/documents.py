"""Documents that people write, read strictly: what JSON can say, in JSON or YAML. No key twice, no aliases."""

from __future__ import annotations

import json


class BadDocument(Exception):
    """The text is no document; says what it is not, and why."""


def read_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"is not JSON: {error}") from None


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return found


def read_yaml(text: str) -> object:
    import yaml

    class StrictLoader(yaml.SafeLoader):
        """What JSON can say, in YAML: a date stays a string."""

        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                # Aliases can make a small file enormous, and JSON has none.
                raise yaml.MarkedYAMLError(problem="aliases are not taken here", problem_mark=self.get_mark())
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002  # PyYAML's own
            seen: set[str] = set()
            for key, _ in node.value:
                if key.tag != "tag:yaml.org,2002:str":
                    raise yaml.MarkedYAMLError(problem="a key must be a string", problem_mark=key.start_mark)
                if key.value in seen:
                    problem = f"the key {key.value!r} stands there twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    try:
        return yaml.load(text, Loader=StrictLoader)  # noqa: S506 (a SafeLoader, made stricter)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise BadDocument(f"is not YAML: {error.problem}{place}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadDocument(f"is not YAML: {error}") from None
