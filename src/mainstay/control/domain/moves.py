"""What a move does, run by run: which agent applies which manifests, and what is not done. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.domain.blueprints import kept_manifest, manifest_of

CONNECTED = "Connected"
STATUS_WORDS = {"New": "offline", "Disconnected": "offline", "Disabled": "disabled", "Error": "in status Error"}


@dataclass(frozen=True, slots=True)
class MoveAgent:
    name: str
    status: str

    @property
    def is_connected(self) -> bool:
        return self.status == CONNECTED

    @property
    def absence(self) -> str:
        return STATUS_WORDS.get(self.status, self.status)


@dataclass(frozen=True, slots=True)
class MoveRun:
    """One run on a host. `manifests` in the order in which the agent applies them."""

    action: str
    manifests: tuple[str, ...]
    summary: str


def runs_of_move(blueprint: object, state: str, target: MoveAgent, old: MoveAgent) -> tuple[MoveRun, MoveRun]:
    """The job of the target, and the clean-up of the old agent."""
    return _creation(blueprint, state, target), _clean_up(blueprint, old)


def _creation(blueprint: object, state: str, target: MoveAgent) -> MoveRun:
    create, kept = manifest_of(blueprint, "create"), kept_manifest(blueprint, state)
    manifests = tuple(each for each in (create, kept) if each is not None)
    if create is None:
        return MoveRun(
            "create", (), f"the job fails on {target.name}: the blueprint has no manifest for `create`; nothing moves"
        )
    steps = f"{target.name} applies {create}" + (f", then {kept} for the state {state}" if kept else "")
    waits = "" if target.is_connected else f" once it connects: it is {target.absence}"
    return MoveRun("create", manifests, f"{steps}{waits}; the service changes its agent when this has succeeded")


def _clean_up(blueprint: object, old: MoveAgent) -> MoveRun:
    delete = manifest_of(blueprint, "delete")
    left = "what the service left there keeps running, and its pool values stay reserved"
    if delete is None:
        return MoveRun(
            "delete",
            (),
            f"the host of {old.name} is not cleaned up: the blueprint has no manifest for `delete`; {left} until an admin"
            " removes it by hand and forgets the clean-up",
        )
    if not old.is_connected:
        return MoveRun(
            "delete",
            (delete,),
            f"nothing is done on the host of {old.name}, which is {old.absence}: {left} until the agent connects and"
            f" applies {delete}, or an admin forgets the clean-up",
        )
    return MoveRun("delete", (delete,), f"{old.name} cleans up its host: it applies {delete} and confirms")
