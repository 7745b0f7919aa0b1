"""Measures how fast a host converges to a manifest: mainstay, the bare floor and the installed peers.

All results are ratios within one run. Contestants run alternately, and the lowest of several rounds counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contestants import Floor, Mainstay, MainstayFlow, MainstayJson, find
from benchmarks.measure import ContestantFailed, Cost, measure
from benchmarks.work import ACTIONS, COMMANDS, COPY, CREATE, FILES, NO_OP, Work, WrongResult, title

if TYPE_CHECKING:
    from benchmarks.contestants import Contestant


SIZES = (1, 100, 1_000, 10_000, 100_000)
QUICK_SIZES = (1, 100, 1_000)
LARGEST_FOR_ALL = 10_000
COMMAND_COUNT = 100
FACTOR_BOUND = 2.0
# CPU against the text output of a block-style manifest.
VARIANT_BOUNDS = {MainstayJson.name: 1.3, MainstayFlow.name: 1.6}
MEMORY_BOUND_MEGABYTES = 150.0
# Growth is linear if the cost per resource, relative to the floor, rises at most by this factor from the first size
# step to the last.
LINEAR_BOUND = 1.3
NO_OP_REPEATS = 3
# Rounds by size: small runs are short and noisy.
ROUNDS = {1: 15, 100: 7, 1_000: 5, 10_000: 3, 100_000: 1}


class Key(NamedTuple):
    kind: str
    size: int
    action: str
    contestant: str


Costs = dict[Key, Cost]


def main() -> int:
    options = read_options()
    # With PYTHONDONTWRITEBYTECODE set, every start would compile the sources again.
    compile_sources()
    contestants = find(options.peer_path, options.mainstay, options.without)
    print(f"contestants: {', '.join(f'{one.name} ({one.path})' for one in contestants)}")
    os.makedirs(options.directory, exist_ok=True)
    costs: Costs = {}
    with tempfile.TemporaryDirectory(prefix="mainstay-bench-", dir=options.directory) as folder:
        for kind, count in plan(options):
            race(kind, count, contestants, folder, costs, options)
            print_table(kind, count, contestants, costs)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(markdown_table(contestants, costs))
    print("\nGoals")
    verdicts = list(goals(costs))
    for is_reached, text in verdicts:
        print(f"  {'reached' if is_reached else 'MISSED '}  {text}")
    return 0 if all(is_reached for is_reached, _ in verdicts) else 1


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.converge", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds, no slow peers; takes seconds")
    parser.add_argument("--sizes", metavar="N,N", help="numbers of files; default: 1 to 100,000")
    parser.add_argument("--turns", type=int, help="rounds per contestant; default: depends on the size")
    parser.add_argument("--patient", action="store_true", help="run slow peers at every size up to 10,000")
    parser.add_argument("--without", metavar="PEER", action="append", default=[], help="leave out a peer")
    parser.add_argument(
        "--peer-path",
        metavar="DIRECTORY",
        action="append",
        default=[part for part in os.environ.get("MAINSTAY_BENCH_PEERS", "").split(os.pathsep) if part],
        help="search for peers here before PATH (also MAINSTAY_BENCH_PEERS)",
    )
    parser.add_argument("--mainstay", metavar="PROGRAM", help="mainstay to measure; default: next to this Python")
    parser.add_argument("--markdown", metavar="FILE", help="also write the table of the guide, in wall seconds")
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="directory for the work")
    return parser.parse_args()


def compile_sources() -> None:
    import compileall

    here = os.path.dirname(os.path.abspath(__file__))
    compileall.compile_dir(os.path.join(os.path.dirname(here), "src"), quiet=1)


def plan(options: argparse.Namespace) -> list[tuple[str, int]]:
    sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else None
    files = [(FILES, size) for size in sizes or (QUICK_SIZES if options.quick else SIZES)]
    return files if sizes else [*files, (COMMANDS, COMMAND_COUNT), (COPY, 1)]


# ---- running ----
def race(
    kind: str, count: int, contestants: list[Contestant], folder: str, costs: Costs, options: argparse.Namespace
) -> None:
    """Runs every contestant, alternately."""
    starters = {
        one: Work(kind, count, f"{folder}/{kind}-{count}-{one.name}")
        for one in contestants
        if kind in one.kinds and takes_part(one, count, options)
    }
    manifests = {one: one.write(work) for one, work in starters.items()}
    rounds = options.turns or (2 if options.quick else ROUNDS.get(count, 3) if kind == FILES else 3)
    for number in range(rounds):
        for one, work in list(starters.items()):
            if one.is_slow and number > 0:
                continue
            try:
                run_round(one, work, manifests[one], costs)
            except (ContestantFailed, WrongResult) as error:
                print(
                    f"{one.name} failed at {title(work.kind, work.count)} and is left out: {error}", file=sys.stderr
                )
                del starters[one]
                if isinstance(one, Mainstay):
                    raise


def takes_part(one: Contestant, count: int, options: argparse.Namespace) -> bool:
    if one.name in (Floor.name, Mainstay.name):
        return True
    if options.quick:
        return not one.is_slow
    return count <= (LARGEST_FOR_ALL if options.patient else one.largest)


def run_round(one: Contestant, work: Work, manifest: str, costs: Costs) -> None:
    for action in ACTIONS[work.kind]:
        # Large trees are created only a few times; repeating the no-op is cheap and reduces noise.
        for _ in range(NO_OP_REPEATS if action == NO_OP and not one.is_slow else 1):
            work.prepare(action)
            cost = measure(one.command(work, manifest, action), one.environ(work), f"{work.folder}/output")
            work.check(action)
            key = Key(work.kind, work.count, action, one.name)
            costs[key] = cost if key not in costs else cost.best(costs[key])


# ---- showing ----
def print_table(kind: str, count: int, contestants: list[Contestant], costs: Costs) -> None:
    print(f"\n{title(kind, count):<34}{'wall s':>9}{'CPU s':>9}{'x floor':>9}{'x fl. CPU':>10}{'peak MB':>9}")
    for action in ACTIONS[kind]:
        floor = costs[Key(kind, count, action, Floor.name)]
        for one in contestants:
            cost = costs.get(Key(kind, count, action, one.name))
            if cost is None:
                continue
            wall, cpu = cost.wall_seconds / floor.wall_seconds, cost.cpu_seconds / floor.cpu_seconds
            print(
                f"  {action:<12}{one.name:<20}{cost.wall_seconds:>9.3f}{cost.cpu_seconds:>9.3f}"
                f"{wall:>9.2f}{cpu:>10.2f}{cost.peak_megabytes:>9.0f}"
            )
    sys.stdout.flush()


def markdown_table(contestants: list[Contestant], costs: Costs) -> str:
    """The table of docs/guide/operating/benchmarks.md: one row per work and action, one column per contestant."""
    shown = [one.name for one in contestants if any(key.contestant == one.name for key in costs)]
    lines = [f"| work | | {' | '.join(shown)} |", "|---|---|" + "---|" * len(shown)]
    for kind, size, action in dict.fromkeys((key.kind, key.size, key.action) for key in costs):
        found = (costs.get(Key(kind, size, action, name)) for name in shown)
        cells = ("" if cost is None else f"{cost.wall_seconds:.3g}" for cost in found)
        lines.append(f"| {title(kind, size)} | {action} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# ---- judging ----
def goals(costs: Costs) -> list[tuple[bool, str]]:
    """Every goal that the sizes of this run cover."""
    found = [within(costs, action) for action in (NO_OP, CREATE)]
    own = costs.get(Key(FILES, LARGEST_FOR_ALL, CREATE, Mainstay.name))
    if own is not None:
        peak = max(own.peak_megabytes, costs[Key(FILES, LARGEST_FOR_ALL, NO_OP, Mainstay.name)].peak_megabytes)
        found.append((peak < MEMORY_BOUND_MEGABYTES, f"memory at 10,000: {peak:.0f} MB, bound 150 MB"))
    found += [variant(costs, name, bound) for name, bound in VARIANT_BOUNDS.items()]
    found += [linear(costs, action) for action in (NO_OP, CREATE)]
    found += never_slower(costs)
    return [verdict for verdict in found if verdict is not None]


def within(costs: Costs, action: str) -> tuple[bool, str] | None:
    own = costs.get(Key(FILES, LARGEST_FOR_ALL, action, Mainstay.name))
    if own is None:
        return None
    floor = costs[Key(FILES, LARGEST_FOR_ALL, action, Floor.name)]
    wall, cpu = own.wall_seconds / floor.wall_seconds, own.cpu_seconds / floor.cpu_seconds
    text = f"{action} at 10,000: {wall:.2f} times the floor ({cpu:.2f} in CPU), bound {FACTOR_BOUND:.0f}"
    return max(wall, cpu) <= FACTOR_BOUND, text


def variant(costs: Costs, name: str, bound: float) -> tuple[bool, str] | None:
    own = costs.get(Key(FILES, LARGEST_FOR_ALL, NO_OP, name))
    if own is None:
        return None
    ratio = own.cpu_seconds / costs[Key(FILES, LARGEST_FOR_ALL, NO_OP, Mainstay.name)].cpu_seconds
    return (
        ratio <= bound,
        f"{name}, {NO_OP} at 10,000: {ratio:.2f} times the CPU of text and block style, bound {bound}",
    )


def linear(costs: Costs, action: str) -> tuple[bool, str] | None:
    """Whether an additional resource costs the same in a small and in a huge run; start-up drops out.

    Compared with the floor, because in the file system itself the cost of a file grows with the number of files."""
    own, floor = steps(costs, action, Mainstay.name), steps(costs, action, Floor.name)
    if len(own) < 2 or len(floor) != len(own):
        return None
    growth = [step / bare for step, bare in zip(own.values(), floor.values(), strict=True)]
    sizes = " → ".join(f"{size:,}" for size in (SIZES[1], *own))
    shown = ", ".join(f"{step * 1e6:.0f} (floor {floor[size] * 1e6:.0f})" for size, step in own.items())
    text = f"{action} grows linearly, {sizes}: {shown} µs CPU per additional resource"
    return growth[-1] <= LINEAR_BOUND * min(growth[:-1]), text


def steps(costs: Costs, action: str, contestant: str) -> dict[int, float]:
    """Size → CPU seconds per resource added since the previous size."""
    seconds = [
        (size, cost.cpu_seconds)
        for size in SIZES[1:]
        if (cost := costs.get(Key(FILES, size, action, contestant))) is not None
    ]
    return {after[0]: (after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(seconds)}


def never_slower(costs: Costs) -> list[tuple[bool, str]]:
    """One line per peer: the comparison with the smallest lead, in wall or CPU time."""
    closest: dict[str, tuple[float, Key, str]] = {}
    for key, cost in costs.items():
        if key.contestant in (Floor.name, Mainstay.name, *VARIANT_BOUNDS):
            continue
        own = costs[key._replace(contestant=Mainstay.name)]
        for ratio, unit in (
            (cost.wall_seconds / own.wall_seconds, "wall"),
            (cost.cpu_seconds / own.cpu_seconds, "CPU"),
        ):
            if key.contestant not in closest or ratio < closest[key.contestant][0]:
                closest[key.contestant] = (ratio, key, unit)
    return [
        (
            ratio >= 1,
            f"never slower than {peer}: smallest lead ({title(key.kind, key.size)}, {key.action}) {ratio:.2f} times our {unit} time",
        )
        for peer, (ratio, key, unit) in closest.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
