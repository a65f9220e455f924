"""The clock jumps: under a run, and between what a killed run has left and the next one."""

from __future__ import annotations

import contextlib
import os
import time

from tests.faults.forks import die_at
from tests.faults.trial import Outcome, Trial

YEAR = 365 * 86400.0


def set_clock(jumps: list[tuple[float, float]]) -> None:
    """Let this process see another time.

    Parameters
    ----------
    jumps
        Seconds from now, and by how much the clock is off from then on.
    """
    real, real_ns, monotonic = time.time, time.time_ns, time.monotonic
    begun = monotonic()

    def off() -> float:
        past = monotonic() - begun
        return next((by for at, by in reversed(jumps) if past >= at), 0.0)

    time.time = lambda: real() + off()
    time.time_ns = lambda: real_ns() + int(1e9 * off())


def clock_jumps(trial: Trial) -> Outcome:
    """The clock jumps during the run, or the files of a killed run come from another time."""
    rng = trial.rng
    sizes = (-30 * YEAR, -YEAR, -3600.0, 3600.0, YEAR, 10 * YEAR)
    jumps = sorted((rng.uniform(0, trial.clean.seconds), rng.choice(sizes)) for _ in range(3))
    if rng.random() < 0.5:
        ended = trial.run(before=lambda: set_clock(jumps))
        told = ", ".join(f"{by / YEAR:+.2f} years at {at:.2f} s" for at, by in jumps)
        return trial.after(ended, told)
    change = rng.randrange(trial.clean.changes)

    def before() -> None:
        set_clock(jumps)
        die_at(change, trial.out)

    ended = trial.run(before=before)
    trial.settle(ended)
    by = rng.choice(sizes)
    for folder, _, files in os.walk(trial.out):
        for name in (".", *files):
            with contextlib.suppress(FileNotFoundError):
                then = time.time() + by
                os.utime(os.path.join(folder, name), (then, then))
    return trial.after(
        ended, f"killed at change {change}; its files are {by / YEAR:+.2f} years off"
    )
