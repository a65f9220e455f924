"""The process that runs the command is killed, stopped, or has a twin."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.faults.forks import Child, Ended, buried, command, die_at, die_at_place
from tests.faults.trial import Outcome, Trial, Wrong


def kill_driver(trial: Trial) -> Outcome:
    """Kill -9 at a random moment, or at a random change of files, once or several times."""
    how = []
    ended: Ended
    for _ in range(trial.rng.choice((1, 1, 1, 2, 3))):
        if trial.rng.random() < 0.3:
            seconds = trial.rng.uniform(0.0, 1.1 * trial.clean.seconds)
            child = trial.start()
            time.sleep(seconds)
            child.signal(signal.SIGKILL)
            how.append(f"{seconds:.3f} s")
        else:
            change = trial.rng.randrange(trial.clean.changes)
            delay = trial.rng.choice((0.0, 0.0, trial.rng.uniform(0.0, 0.01)))
            quick = trial.rng.random() < 0.5

            def before(change: int = change, delay: float = delay, quick: bool = quick) -> None:
                if quick:
                    _note_often()
                die_at(change, trial.out, delay)

            child = trial.start(before=before)
            how.append(f"change {change} + {1e3 * delay:.1f} ms{', noting often' * quick}")
        ended = child.end()
        if trial.settle(ended):
            break
    return trial.after(ended, "; ".join(how))


def _note_often() -> None:
    """Let an ingest note after every chunk how far it is: these here take no second."""
    from croma_dask.cohort import writer

    writer.PROGRESS_SECONDS = 0.0


def stop(trial: Trial, seconds: float) -> Outcome:
    """Stop the process for a while at a random moment, and let it go on."""
    at = trial.rng.uniform(0.0, trial.clean.seconds)
    child = trial.start()
    with buried(child):
        time.sleep(at)
        child.signal(signal.SIGSTOP)
        time.sleep(seconds)
        child.signal(signal.SIGCONT)
        return trial.after(child.end(), f"at {at:.3f} s, for {seconds:.0f} s")


def twins(trial: Trial) -> Outcome:
    """Start the same command twice, or with --overwrite over what is there, at nearly one time."""
    over = trial.rng.random() < 0.4
    more = ("--overwrite",) if over and trial.one.name != "ingest" else ()
    if more and trial.rng.random() < 0.5:
        trial.settle(trial.run())
    gap = trial.rng.choice((0.0, trial.rng.uniform(0.0, trial.clean.seconds)))
    first = trial.start(*more)
    time.sleep(gap)
    second = trial.start(*more)
    with buried(first, second):
        ends = [first.end(), second.end()]
    for ended in ends:
        if ended.code != 0 and (complaint := ended.complaint()):
            raise Wrong(f"one of two runs: {complaint}")
    if all(ended.code != 0 for ended in ends):
        raise Wrong(f"both of two runs refuse: {[ended.err for ended in ends]}")
    # One of them says that it is done, so it is.
    trial.compare(whole=True)
    trial.again()
    refused = [ended for ended in ends if ended.code != 0]
    how = f"{gap:.3f} s apart{', --overwrite' * bool(more)}"
    if refused:
        return Outcome("refused clearly", how, refused[0].err.strip())
    return Outcome("unaffected", how)


_OTHER = {
    "--k 5,11": "--k 7,11", "--draws 50": "--draws 40", "x.npy": "x2.npy",
    "linear:20:3": "linear:20:2",
}  # fmt: skip
"""What a rival has in place of what stands in a command line."""


def _rival(trial: Trial, out: Path, *more: str) -> Child:
    """Start the command with one argument changed."""
    a, b = next((a, b) for a, b in _OTHER.items() if a in trial.one.line)
    line = trial.one.line.replace(a, b)
    filled = line.format(i=trial.inputs, o=out, memory=trial.bench.memory)
    return Child(lambda: command([*filled.split(), *more]), trial.log)


def _end_well(child: Child) -> None:
    ended = child.end()
    if ended.code != 0:
        raise RuntimeError(f"the rival fails by itself: {ended.err}")


def overwritten(trial: Trial) -> Outcome:
    """Kill a run that replaces an earlier result: the old one or the new one is there, whole."""
    _end_well(_rival(trial, trial.out))
    old = trial.standing()
    renaming = trial.rng.randrange(1, 4 * len(trial.one.outputs))
    ended = trial.run("--overwrite", before=lambda: die_at_place(renaming, trial.out))
    how = f"--overwrite, killed before renaming {renaming}"
    for output, found in trial.standing().items():
        if found not in (old[output], trial.clean.content[output]):
            raise Wrong(f"{how}: {output} is neither the old nor the new one: {found or 'gone'}")
    if ended.code == 0:
        return Outcome("unaffected", how)
    again = trial.run("--overwrite")
    if again.code != 0:
        raise Wrong(f"{how}: no way on: {again.err}")
    trial.compare(whole=True)
    return Outcome("right on rerun", how, again.err.strip())


def rivals(trial: Trial) -> Outcome:
    """Two runs that differ write to one place: one of them wins, whole."""
    more = () if trial.one.name == "ingest" else ("--overwrite",)
    alone = trial.folder / "alone"
    alone.mkdir()
    _end_well(_rival(trial, alone))
    theirs = trial.standing(alone)
    gap = trial.rng.choice((0.0, trial.rng.uniform(0.0, trial.clean.seconds)))
    first = trial.start(*more)
    time.sleep(gap)
    second = _rival(trial, trial.out, *more)
    with buried(first, second):
        ends = [first.end(), second.end()]
    for ended in ends:
        if ended.code != 0 and (complaint := ended.complaint()):
            raise Wrong(f"one of two runs: {complaint}")
    for output, found in trial.standing().items():
        if found not in (trial.clean.content[output], theirs[output]):
            raise Wrong(f"{output} is of neither run: {found}")
    how = f"{gap:.3f} s apart"
    done = [ended.code == 0 for ended in ends]
    if not any(done):
        raise Wrong(f"both of two runs refuse: {[ended.err for ended in ends]}")
    told = next((ended.err.strip() for ended in ends if ended.code != 0), "")
    return Outcome("refused clearly" if told else "unaffected", how, told)
