"""Bits flip, files are cut short or vanish: in what a command reads, or resumes from."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.faults.forks import die_at
from tests.faults.trial import Outcome, Trial, Wrong

WAYS = ("bit", "bit", "bit", "truncated", "missing", "zeroed", "emptied", "longer")


def hurt(path: Path, rng: random.Random) -> str:
    """Damage a file in some way; says how."""
    way = rng.choice(WAYS)
    data = bytearray(path.read_bytes())
    if not data:
        way = "missing"
    if way == "bit":
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        data[at] ^= 1 << bit
        way = f"bit {bit} of byte {at}"
    elif way == "truncated":
        length = rng.randrange(len(data))
        del data[length:]
        way = f"truncated to {length} bytes"
    elif way == "zeroed":
        lo = rng.randrange(len(data))
        hi = min(len(data), lo + 512)
        data[lo:hi] = bytes(hi - lo)
        way = f"bytes {lo} to {hi} zeroed"
    elif way == "emptied":
        data.clear()
    elif way == "longer":
        data += rng.randbytes(rng.choice((1, 8, 4096)))
    if way == "missing":
        path.unlink()
    else:
        path.write_bytes(data)
    return way


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return sorted(p for p in place.rglob("*") if p.is_file() and p.name != "lock")


def damaged_input(trial: Trial) -> Outcome:
    """One file of what the command reads is damaged; then it is as it was."""
    inputs = trial.own_inputs()
    named = trial.rng.choice([name for name in trial.one.reads if name.endswith((".zarr", ".nc"))])
    # Data and metadata alike: of a store most files are small ones.
    files = _files(inputs / named)
    large = [path for path in files if path.stat().st_size > 2048]
    path = trial.rng.choice(trial.rng.choice((files, large or files)))
    how = f"{path.relative_to(inputs)}: {hurt(path, trial.rng)}"
    ended = trial.run()
    try:
        done = trial.settle(ended)
    except Wrong as wrong:
        raise Wrong(f"{how}: {wrong}") from None
    shutil.rmtree(inputs)
    shutil.copytree(trial.bench.inputs, inputs)
    if not done:
        trial.again()
    return Outcome("unaffected" if done else "refused clearly", how, ended.err.strip())


def damaged_leftover(trial: Trial) -> Outcome:
    """What a killed run has left to resume from is damaged before the next one."""
    change = trial.rng.randrange(trial.clean.changes // 4, trial.clean.changes)

    def before() -> None:
        from croma_dask.cohort import writer

        writer.PROGRESS_SECONDS = 0.0
        die_at(change, trial.out)

    ended = trial.run(before=before)
    if trial.settle(ended):
        return Outcome("unaffected", f"change {change} never came")
    files = [
        path
        for path in _files(trial.out)
        # An output that stands there, finished, is not what a run resumes from.
        if path.relative_to(trial.out).parts[0] not in _finished(trial)
    ]
    if not files:
        return trial.after(ended, f"change {change}; nothing was left")
    path = trial.rng.choice(files)
    how = f"killed at change {change}; {path.relative_to(trial.out)}: {hurt(path, trial.rng)}"
    try:
        again = trial.again(may_remove=True)
    except Wrong as wrong:
        raise Wrong(f"{how}: {wrong}") from None
    verdict = "right on rerun" if again.code == 0 else "refused clearly"
    return Outcome(verdict, how, again.err.strip())  # type: ignore[arg-type]


def _finished(trial: Trial) -> list[str]:
    """Outputs that open."""
    return [
        output
        for output, found in trial.standing().items()
        if found and found == trial.clean.content[output]
    ]
