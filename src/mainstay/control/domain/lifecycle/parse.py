"""Parses a lifecycle document into a `Lifecycle`, or refuses it with all faults and their paths."""

from __future__ import annotations

from mainstay.control.domain.definition_hints import instead_of, written_as
from mainstay.control.domain.faults import MAX_LISTED, PathFault, locate
from mainstay.control.domain.lifecycle.schema import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TIMEOUT_SECONDS,
    Action,
    Lifecycle,
    Transition,
)
from mainstay.control.domain.patterns import BadPattern, Search, compile_pattern
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.domain.values import Properties, is_integer, json_problem, type_name, whole
from mainstay.foundation.suggestions import did_you_mean

ROOT_KEYS = frozenset({"states", "actions", "initialState", "terminalStates", "runningStates"})
STATE_KEYS = frozenset({"name"})
ACTION_KEYS = frozenset(
    {
        "name",
        "requestSchemaType",
        "transitions",
        "autoAdvance",
        "timeoutSeconds",
        "pendingTimeoutSeconds",
        "maxAttempts",
    }
)
TRANSITION_KEYS = frozenset({"from", "to", "onError", "onErrorRegexp"})
# Names appear in lists, filters and diagrams.
MAX_NAME_LENGTH = 100


def parse_lifecycle(document: object) -> Lifecycle:
    problem = json_problem(document)
    if problem is not None or not isinstance(document, dict):
        raise InvalidDefinition([PathFault("", f"expected object, got {problem or type_name(document)}")])
    reader = _Reader()
    lifecycle = reader.read_lifecycle(document)
    if reader.faults:
        raise InvalidDefinition(reader.faults)
    return lifecycle


class _Reader:
    def __init__(self) -> None:
        self.faults: list[PathFault] = []

    def fault(self, path: str, message: str) -> None:
        self.faults.append(PathFault(path, message))

    def read_lifecycle(self, document: Properties) -> Lifecycle:
        root = self.known(document, ROOT_KEYS, "")
        states = self.read_states(root)
        initial = self.read_state(root, "initialState", states, "")
        terminal = self.read_state_list(root, "terminalStates", states)
        running = self.read_state_list(root, "runningStates", states)
        actions = self.read_actions(root, states)
        self.check_create(actions, initial)
        self.check_terminal(actions, terminal)
        return Lifecycle(
            document,
            tuple(states),
            {name: action for name, (action, _) in actions.items()},
            initial,
            frozenset(terminal),
            frozenset(running),
        )

    def known(self, document: Properties, keys: frozenset[str], path: str) -> Properties:
        """The keys with a value other than null. Unknown keys are faults."""
        given = {key: value for key, value in document.items() if value is not None}
        for key in given:
            if key not in keys:
                hint = instead_of(key, keys) if len(self.faults) < MAX_LISTED else ""
                self.fault(locate(path, key), f"unknown key{hint}")
        return given

    def known_states(self, state: str, states: list[str]) -> str:
        """The way out, for the faults that are listed."""
        if len(self.faults) >= MAX_LISTED or not states:
            return ""
        return did_you_mean(state, states) or f"; there are {', '.join(states[:MAX_LISTED])}"

    def read_objects(
        self, document: Properties, key: str, keys: frozenset[str], outer: str
    ) -> list[tuple[str, Properties]]:
        """The objects of a required list, with their paths."""
        path = locate(outer, key)
        entries = document.get(key)
        if entries is None:
            self.fault(path, f"{key} is required{written_as(key)}")
            return []
        if not isinstance(entries, list):
            self.fault(path, f"expected array, got {type_name(entries)}{written_as(key)}")
            return []
        objects = []
        for index, entry in enumerate(entries):
            if isinstance(entry, dict):
                objects.append((locate(path, index), self.known(entry, keys, locate(path, index))))
            else:
                self.fault(locate(path, index), f"expected object, got {type_name(entry)}{written_as(key)}")
        return objects

    def read_name(self, entry: Properties, path: str, taken: dict[str, object] | list[str]) -> str | None:
        name = entry.get("name")
        path = locate(path, "name")
        if name is None or name == "":
            self.fault(path, "name is required")
        elif not isinstance(name, str):
            self.fault(path, f"expected string, got {type_name(name)}")
        elif len(name) > MAX_NAME_LENGTH:
            self.fault(path, f"name is longer than {MAX_NAME_LENGTH} characters")
        elif "\0" in name:
            # PostgreSQL cannot store it, and the names of states and actions are columns of services and jobs.
            self.fault(path, "name contains a NUL character")
        elif name in taken:
            self.fault(path, f"duplicate name '{name}'")
        else:
            return name
        return None

    def read_states(self, root: Properties) -> list[str]:
        states: list[str] = []
        for path, entry in self.read_objects(root, "states", STATE_KEYS, ""):
            name = self.read_name(entry, path, states)
            if name is not None:
                states.append(name)
        return states

    def read_state(self, document: Properties, key: str, states: list[str], outer: str) -> str:
        state = document.get(key)
        path = locate(outer, key)
        if state is None:
            self.fault(path, f"{key} is required")
        elif not isinstance(state, str):
            self.fault(path, f"expected string, got {type_name(state)}")
        elif state not in states:
            self.fault(path, f"state '{state}' is not in states{self.known_states(state, states)}")
        else:
            return state
        return ""

    def read_state_list(self, root: Properties, key: str, states: list[str]) -> list[str]:
        named = root.get(key, [])
        if not isinstance(named, list):
            self.fault(key, f"expected array, got {type_name(named)}")
            return []
        read: list[str] = []
        for index, state in enumerate(named):
            if not isinstance(state, str):
                self.fault(locate(key, index), f"expected string, got {type_name(state)}")
            elif state not in states:
                self.fault(locate(key, index), f"state '{state}' is not in states{self.known_states(state, states)}")
            elif state in read:
                self.fault(locate(key, index), f"duplicate name '{state}'")
            else:
                read.append(state)
        return read

    def read_actions(self, root: Properties, states: list[str]) -> dict[str, tuple[Action, str]]:
        actions: dict[str, tuple[Action, str]] = {}
        for path, entry in self.read_objects(root, "actions", ACTION_KEYS, ""):
            name = self.read_name(entry, path, list(actions))
            action = self.read_action(name or "", entry, path, states)
            if name is not None:
                actions[name] = (action, path)
        return actions

    def read_action(self, name: str, entry: Properties, path: str, states: list[str]) -> Action:
        return Action(
            name,
            self.read_transitions(entry, path, states),
            takes_properties=self.read_request_type(entry, path),
            auto_advance=self.read_flag(entry, "autoAdvance", path),
            timeout_seconds=self.read_count(entry, "timeoutSeconds", path) or DEFAULT_TIMEOUT_SECONDS,
            pending_timeout_seconds=self.read_count(entry, "pendingTimeoutSeconds", path),
            max_attempts=self.read_count(entry, "maxAttempts", path) or DEFAULT_MAX_ATTEMPTS,
        )

    def read_request_type(self, entry: Properties, path: str) -> bool:
        request_type = entry.get("requestSchemaType", "")
        if request_type not in ("", "properties"):
            self.fault(locate(path, "requestSchemaType"), "requestSchemaType must be 'properties' or omitted")
        return request_type == "properties"

    def read_flag(self, entry: Properties, key: str, path: str) -> bool | None:
        flag = entry.get(key)
        if flag is not None and type(flag) is not bool:
            self.fault(locate(path, key), f"expected boolean, got {type_name(flag)}{written_as(key)}")
            return None
        return flag

    def read_count(self, entry: Properties, key: str, path: str) -> int | None:
        count = entry.get(key)
        if count is None:
            return None
        if not is_integer(count) or (number := whole(count)) < 1:  # type: ignore[arg-type]
            self.fault(locate(path, key), f"{key} must be a positive integer")
            return None
        return int(number)

    def read_transitions(self, entry: Properties, path: str, states: list[str]) -> tuple[Transition, ...]:
        transitions: list[Transition] = []
        origins: set[str] = set()
        for inner, document in self.read_objects(entry, "transitions", TRANSITION_KEYS, path):
            transition = self.read_transition(document, inner, states)
            if not transition.on_error and transition.origin:
                if transition.origin in origins:
                    self.fault(inner, f"there is already a success transition from '{transition.origin}'")
                origins.add(transition.origin)
            transitions.append(transition)
        return tuple(transitions)

    def read_transition(self, document: Properties, path: str, states: list[str]) -> Transition:
        on_error = self.read_flag(document, "onError", path) or False
        origin = self.read_state(document, "from", states, path)
        to = self.read_state(document, "to", states, path)
        pattern, search = self.read_pattern(document, path, on_error=on_error)
        return Transition(origin, to, on_error, pattern, search)

    def read_pattern(self, document: Properties, path: str, *, on_error: bool) -> tuple[str | None, Search | None]:
        pattern = document.get("onErrorRegexp")
        path = locate(path, "onErrorRegexp")
        # An empty expression matches everything, as no expression does.
        if pattern is None or pattern == "":
            return None, None
        if not isinstance(pattern, str):
            self.fault(path, f"expected string, got {type_name(pattern)}")
            return None, None
        if not on_error:
            self.fault(path, "onErrorRegexp needs onError")
        try:
            return pattern, compile_pattern(pattern)
        except BadPattern as reason:
            self.fault(path, f"invalid regular expression: {reason}")
            return None, None

    def check_create(self, actions: dict[str, tuple[Action, str]], initial: str) -> None:
        if "create" not in actions:
            self.fault("actions", "there is no action 'create'")
        elif initial and initial not in actions["create"][0].successes:
            self.fault(
                locate(actions["create"][1], "transitions"),
                f"action 'create' has no success transition from the initial state '{initial}'",
            )

    def check_terminal(self, actions: dict[str, tuple[Action, str]], terminal: list[str]) -> None:
        for action, path in actions.values():
            for index, transition in enumerate(action.transitions):
                if transition.origin in terminal:
                    where = locate(locate(path, "transitions"), index)
                    self.fault(
                        locate(where, "from"), f"no transition may leave the terminal state '{transition.origin}'"
                    )
