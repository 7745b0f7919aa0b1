"""Counts the instructions per additional file, independent of other load on the machine.

valgrind counts them in user space. The result is the difference between two sizes, so start-up drops out. It does not
include the kernel; `benchmarks.converge` measures seconds.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

from benchmarks.contestants import Floor, Mainstay, find
from benchmarks.converge import compile_sources
from benchmarks.measure import measure
from benchmarks.work import CREATE, FILES, NO_OP, Work

if TYPE_CHECKING:
    from benchmarks.contestants import Contestant

SIZES = (500, 1500)
COUNTER = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
TOTAL = re.compile(r"I +refs: +([\d,]+)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.instructions", description=__doc__)
    parser.add_argument("--mainstay", metavar="PROGRAM", help="mainstay to measure; default: next to this Python")
    options = parser.parse_args()
    if shutil.which(COUNTER[0]) is None:
        print("valgrind is not installed", file=sys.stderr)
        return 2
    compile_sources()
    contestants = [one for one in find([], options.mainstay, []) if one.name in (Floor.name, Mainstay.name)]
    counts = {one.name: per_file(one) for one in contestants}
    print(f"{'instructions per file':<24}{Floor.name:>12}{Mainstay.name:>12}{'x floor':>9}")
    for action in (CREATE, NO_OP):
        floor, own = counts[Floor.name][action], counts[Mainstay.name][action]
        print(f"  {action:<22}{floor:>12,.0f}{own:>12,.0f}{own / floor:>9.2f}")
    return 0


def per_file(one: Contestant) -> dict[str, float]:
    """Action → instructions per file beyond the smaller size."""
    with tempfile.TemporaryDirectory(prefix="mainstay-bench-") as folder:
        small, large = (count(one, Work(FILES, size, f"{folder}/{size}")) for size in SIZES)
    return {action: (large[action] - small[action]) / (SIZES[1] - SIZES[0]) for action in small}


def count(one: Contestant, work: Work) -> dict[str, int]:
    manifest = one.write(work)
    # A fixed hash seed makes the layout of sets and maps, and so the count, reproducible.
    environ = {**one.environ(work), "PYTHONHASHSEED": "0"}
    found = {}
    for action in (CREATE, NO_OP):
        work.prepare(action)
        output = f"{work.folder}/output"
        measure([*COUNTER, *one.command(work, manifest, action)], environ, output)
        work.check(action)
        with open(output, encoding="utf-8", errors="replace") as file:
            totals = TOTAL.findall(file.read())
        found[action] = int(totals[-1].replace(",", ""))
    return found


if __name__ == "__main__":
    sys.exit(main())
