"""A scheduler and workers that are forked, too: killed one by one while a command uses them."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.forks import Child, buried
from tests.faults.trial import Outcome, Trial, Wrong

WORKERS = 2


class Cluster:
    """A scheduler and its workers, in folders of one fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = folder / "scheduler.json"
        self.scheduler = Child(lambda: _scheduler(self.address), folder)
        self.workers: list[Child] = []
        deadline = time.monotonic() + 60
        while not self.address.exists():
            if self.scheduler.over() or time.monotonic() > deadline:
                raise RuntimeError(f"no scheduler: {self.scheduler.end(0).err}")
            time.sleep(0.01)

    def add_worker(self) -> None:
        """Start a worker."""
        number = len(self.workers)
        self.workers.append(
            Child(lambda: _worker(self.address, self.folder / f"worker-{number}"), self.folder)
        )

    def bury(self) -> None:
        """Kill everything."""
        for child in (*self.workers, self.scheduler):
            child.bury()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a scheduler and two workers; kill what is left of them at the end."""
    folder.mkdir()
    started = Cluster(folder)
    try:
        for _ in range(WORKERS):
            started.add_worker()
        yield started
    finally:
        started.bury()


def _scheduler(address: Path) -> None:
    import asyncio
    import json

    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
            partial = address.with_suffix(".partial")
            partial.write_text(json.dumps({"address": scheduler.address}))
            partial.rename(address)
            await scheduler.finished()

    asyncio.run(serve())


def _worker(address: Path, folder: Path) -> None:
    import asyncio
    import json

    from distributed import Worker

    async def serve() -> None:
        place = json.loads(address.read_text())["address"]
        async with Worker(
            place, nthreads=1, memory_limit="2GiB", local_directory=str(folder), dashboard=False
        ) as worker:
            await worker.finished()

    asyncio.run(serve())


def _wait(trial: Trial, child: Child) -> float:
    """Wait until the run has written something, then for a random part of what it takes."""
    deadline = time.monotonic() + 30
    while not child.over() and time.monotonic() < deadline:
        if any(path.is_file() for path in trial.out.rglob("*")):
            break
        time.sleep(0.005)
    seconds = trial.rng.uniform(0.0, trial.clean.seconds)
    time.sleep(seconds)
    return seconds


def kill_worker(trial: Trial) -> Outcome:
    """Kill -9 one of two workers at a random moment, perhaps the other one too; one comes back."""
    rng = trial.rng
    with cluster(trial.folder / "cluster") as there:
        child = trial.start("--scheduler", str(there.address))
        with buried(child):
            how = []
            for victim in there.workers[: rng.choice((1, 1, 2))]:
                at = _wait(trial, child)
                victim.signal(signal.SIGKILL)
                there.add_worker()
                how.append(f"{at:.3f} s")
            ended = child.end()
    return trial.after(ended, f"once it writes: a worker after {', the other after '.join(how)}")


def kill_scheduler(trial: Trial) -> Outcome:
    """Kill -9 the scheduler at a random moment: the command ends, and says why."""
    with cluster(trial.folder / "cluster") as there:
        child = trial.start("--scheduler", str(there.address))
        with buried(child):
            at = _wait(trial, child)
            there.scheduler.signal(signal.SIGKILL)
            ended = child.end()
    return trial.after(ended, f"{at:.3f} s after its first file")


def kill_driver_of_cluster(trial: Trial) -> Outcome:
    """Kill -9 the driver: its workers go on for a moment, while the next run begins."""
    with cluster(trial.folder / "cluster") as there:
        child = trial.start("--scheduler", str(there.address))
        at = _wait(trial, child)
        child.signal(signal.SIGKILL)
        ended = child.end()
        done = trial.settle(ended)
        how = f"{at:.3f} s after its first file; its cluster serves the next run"
        if done:
            return Outcome("unaffected", how)
        next_run = trial.run("--scheduler", str(there.address))
        if next_run.code == 0:
            trial.compare(whole=True)
            return Outcome("right on rerun", how, next_run.err.strip())
        if complaint := next_run.complaint():
            raise Wrong(f"on the rerun: {complaint}")
    return trial.after(ended, how)
