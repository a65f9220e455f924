"""Faults, one after the other, each with its outcome: a log of all of them, and a table."""

from __future__ import annotations

import json
import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from tests.faults.clocks import clock_jumps
from tests.faults.clusters import kill_driver_of_cluster, kill_scheduler, kill_worker
from tests.faults.damage import damaged_input, damaged_leftover
from tests.faults.disks import disk_full, permission_lost, read_only, temporary_full
from tests.faults.kills import kill_driver, overwritten, rivals, stop, twins
from tests.faults.trial import VERDICTS, Outcome, Skipped, Trial, Wrong
from tests.faults.work import COMMANDS, Bench, set_up

Inject = Callable[[Trial], Outcome]


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes
    ----------
    fault, injected
        What the table says of it.
    inject
        Does it, and judges.
    commands
        What it is done to.
    weight
        How often, beside the others.
    """

    fault: str
    injected: str
    inject: Inject
    commands: tuple[str, ...]
    weight: int = 1


_ALL = tuple(COMMANDS)
_STREAMED = ("score", "score .nc", "score ivf", "index ivf", "probe", "benchmark")
_READERS = tuple(
    n for n, c in COMMANDS.items() if any(r.endswith((".zarr", ".nc")) for r in c.reads)
)
_RIVALS = ("ingest", "score", "score .nc", "score, keeping", "probe", "bootstrap", "bootstrap .nc",
           "report")  # fmt: skip

_REPLACING = tuple(name for name in _RIVALS if name != "ingest")


def kinds(pause: float) -> dict[str, Kind]:
    """Return all kinds of faults, by name; `pause` is how long a stopped process stands still."""
    return {
        "driver": Kind("driver killed", "SIGKILL at a random time, or before any change of files",
                       kill_driver, _ALL, 6),
        "overwrite": Kind("driver killed while it replaces a result",
                          "SIGKILL before a rename that puts it in its place", overwritten,
                          _REPLACING, 2),
        "worker": Kind("worker killed", "SIGKILL while the run writes; another one joins",
                       kill_worker, _STREAMED, 2),
        "scheduler": Kind("scheduler killed", "SIGKILL while the run writes", kill_scheduler,
                          _STREAMED),
        "orphans": Kind("driver of a cluster killed", "SIGKILL; its workers serve the next run",
                        kill_driver_of_cluster, _STREAMED),
        "disk": Kind("disk full", "tmpfs of 2 % to 130 % of what is needed", disk_full, _ALL, 3),
        "tmp": Kind("temporary folder full", "tmpfs of 4 kB and more as temporary folder",
                    temporary_full, _ALL),
        "readonly": Kind("output read-only", "mode 555, or mounted so", read_only, _ALL),
        "permission": Kind("permission lost", "modes taken away in the middle of a run",
                           permission_lost, _ALL, 2),
        "input": Kind("damaged input", "bit flipped, cut short, zeroed, missing: any file of a "
                      "store, index, kept neighbours, result", damaged_input, _READERS, 6),
        "leftover": Kind("damaged leftovers", "the same, in what a killed run left to resume from",
                         damaged_leftover, ("ingest", "score", "score, keeping", "index ivf",
                                            "score ivf", "score panel", "probe", "benchmark"), 3),
        "clock": Kind("clock jumps", "time.time and the files' times off by hours to 30 years",
                      clock_jumps, _ALL, 2),
        "twins": Kind("two runs, one output", "the same command twice at once", twins, _ALL, 3),
        "rivals": Kind("two different runs, one output", "other arguments, at once", rivals,
                       _RIVALS, 2),
        "stop": Kind("process stopped", f"SIGSTOP for {pause:.0f} s, then SIGCONT",
                     partial(stop, seconds=pause), _ALL),
    }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Which fault comes when: a function of the seed alone."""

    kinds: dict[str, Kind]
    names: Sequence[str]
    commands: Sequence[str]
    seed: int

    def fault(self, number: int) -> tuple[str, str, random.Random]:
        """Return kind, command and generator of the n-th fault."""
        rng = random.Random(f"{self.seed} {number}")
        cycle = [
            name
            for turn in range(max(self.kinds[name].weight for name in self.names))
            for name in self.names
            if self.kinds[name].weight > turn
        ]
        name = cycle[number % len(cycle)]
        there = [c for c in self.kinds[name].commands if c in self.commands]
        return name, rng.choice(there), rng


def run_faults(
    plan: Plan, folder: Path, numbers: Sequence[int], log: TextIO, tell: Callable[[str], object],
    *, minutes: float | None = None,
) -> Counter[tuple[str, str]]:  # fmt: skip
    """Inject faults, and log each as it is over.

    Parameters
    ----------
    plan
        Which.
    folder
        For everything; what goes wrong stays there.
    numbers
        Of the faults to inject.
    log
        Gets a line of JSON a fault.
    tell
        Told how it goes.
    minutes
        Stop after the fault during which they are over.

    Returns
    -------
    Counter
        How often by kind and verdict; ``skipped`` is a verdict here.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    bench = set_up(folder, plan.commands, tell)
    found: Counter[tuple[str, str]] = Counter()
    for number in numbers:
        if end is not None and time.monotonic() > end:
            break
        name, command, rng = plan.fault(number)
        place = folder / f"fault-{number:04d}"
        begun = time.monotonic()
        outcome, verdict = _inject(plan.kinds[name], bench, command, rng, place)
        found[name, verdict] += 1
        entry = {
            "number": number, "seed": plan.seed, "kind": name, "command": command,
            "verdict": verdict, "how": outcome.how, "said": outcome.said,
            "seconds": round(time.monotonic() - begun, 2),
        }  # fmt: skip
        log.write(json.dumps(entry, ensure_ascii=False) + "\n")
        log.flush()
        tell(f"{number} {name}, {command}: {verdict} ({entry['seconds']} s)")
        if verdict == "WRONG":
            tell(f"    {outcome.how}\n    {outcome.said}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    return found


def _inject(
    kind: Kind, bench: Bench, command: str, rng: random.Random, place: Path
) -> tuple[Outcome, str]:
    trial = Trial(bench, COMMANDS[command], rng, place)
    try:
        outcome = kind.inject(trial)
    except Skipped as why:
        return Outcome("unaffected", "", str(why)), "skipped"
    except Wrong as wrong:
        return Outcome("WRONG", "", str(wrong)), "WRONG"
    except Exception:  # noqa: BLE001
        # A defect of the harness, or of what opens a result: a failure in any case.
        return Outcome("WRONG", "", traceback.format_exc()[-3000:]), "WRONG"
    return outcome, outcome.verdict


def table(plan: Plan, found: Counter[tuple[str, str]]) -> str:
    """Lay outcomes out as a Markdown table."""
    lines = [
        "| fault | how injected | tried | right on rerun | refused clearly | unaffected | wrong |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    total: Counter[str] = Counter()
    for name in plan.names:
        kind = plan.kinds[name]
        counts = [found[name, verdict] for verdict in VERDICTS]
        if sum(counts):
            cells = [kind.fault, kind.injected, sum(counts), *counts]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        total.update({v: found[name, v] for v in VERDICTS})
    sums = [total[verdict] for verdict in VERDICTS]
    lines.append("| " + " | ".join(map(str, ["all", "", sum(sums), *sums])) + " |")
    skipped = sum(n for (_, verdict), n in found.items() if verdict == "skipped")
    if skipped:
        lines.append(f"\n{skipped} faults could not be injected here: see the log.")
    return "\n".join(lines)
