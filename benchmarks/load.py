"""What is more, or less, than anybody is likely to bring: does each work, or is it refused?"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import child, timing
from benchmarks.load_cases import CASES

FACES = ("api", "cli")

LONGEST_LINE = 5_000
"""Characters of a line, or a message, beyond which nobody reads it."""

REPEATS = {
    "scores": 1_000, "scores of arrays": 200, "streamed scores": 200, "scores on a cluster": 200,
    "bootstraps": 100, "reports": 100, "saves": 100, "benchmarks": 100,
}  # fmt: skip
"""Runs in one process of each kind of work."""

_HEADER = (
    "case", "rows x features", "step", "through", "outcome", "seconds", "peak above imports",
    "peak above a bare Python", "planned",
)  # fmt: skip


def measure(case: str, folder: str, steps: Sequence[str], faces: Sequence[str]) -> list[list[str]]:
    """Run the steps of a case, each in a process of its own, and return lines of the table."""
    one = CASES[case]
    child.run("load_steps:make", case=case, folder=folder)
    lines = []
    for step in steps:
        for face in faces:
            try:
                found = child.run("load_steps:run", case=case, step=step, face=face, folder=folder)
            except subprocess.CalledProcessError as err:
                found = {"outcome": f"CRASH: process ended with {err.returncode}"}
            lines.append(_line(one, step, face, found))
    return lines


def _line(one: Any, step: str, face: str, found: dict[str, Any]) -> list[str]:
    def megabytes(name: str) -> str:
        return "" if found.get(name) is None else f"{found[name] / 1e6:.0f} MB"

    outcome = found["outcome"]
    shown = outcome if len(outcome) < 240 else f"{outcome[:240]}... ({len(outcome)} characters)"
    if (found.get("planned") or found.get("whole") or 0) < (found.get("whole") or 0):
        shown += " OVER THE PLAN"
    if found.get("longest_line", 0) > LONGEST_LINE:
        shown += f" (a line of {found['longest_line']:,} characters)"
    return [
        one.title, f"{one.shape.rows:,} x {one.shape.features:,}", step, face,
        shown.replace("\n", " ").replace("|", "\\|"),
        f"{found['seconds']:.1f}" if "seconds" in found else "",
        megabytes("peak"), megabytes("whole"), megabytes("planned"),
    ]  # fmt: skip


def repeat(works: dict[str, int]) -> None:
    """Run each kind of work so often in one process, and print what is left behind."""
    rows = []
    for work, runs in works.items():
        found = child.run("load_repeats:measure", work=work, runs=runs)
        first, last = found["first"], found["last"]
        rows.append(
            (f"{runs:,} {work}", f"{found['seconds']:.0f}",
             *(f"{at['resident'] / 1e6:.1f} MB" for at in (first, last)),
             f"{found['growth'] / 1e3:.2f} kB",
             *(f"{first[name]} to {last[name]}" for name in ("files", "threads")))
        )  # fmt: skip
    timing.table(
        ["in one process", "seconds", "resident after a fifth", "at the end", "a run",
         "open files", "threads"],
        rows,
    )  # fmt: skip


def main(
    cases: Sequence[str] | str = tuple(CASES), faces: Sequence[str] = FACES,
    steps: Sequence[str] | None = None, repeats: dict[str, int] | None = None,
) -> None:  # fmt: skip
    """Run the cases and print their table; then the repeats, and theirs.

    Parameters
    ----------
    cases, faces, steps
        Which of them; all steps that apply where none are named.
    repeats
        How often each kind of work; all of them by default.
    """
    lines = []
    for case in [cases] if isinstance(cases, str) else cases:
        with tempfile.TemporaryDirectory() as folder:
            mine = steps or CASES[case].steps
            lines += measure(case, str(Path(folder)), mine, faces)
    if lines:
        timing.table(_HEADER, lines)
        print()
    repeat(REPEATS if repeats is None else repeats)
