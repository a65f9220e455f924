"""The commands that are disturbed, small and quick, and what they read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tests.faults.content import look
from tests.faults.forks import PATIENCE, Child, Ended, ask, command, count_changes

N, FEATURES = 2000, 16


@dataclass(frozen=True)
class Command:
    """One command line.

    Attributes
    ----------
    name
        In the table.
    line
        The arguments; ``{i}`` is the folder of inputs, ``{o}`` that of outputs, ``{memory}`` the
        least in which the store can be streamed.
    outputs
        What it leaves in the folder of outputs.
    reads
        What it reads of the folder of inputs.
    clustered
        Whether its tasks can run on a cluster.
    """

    name: str
    line: str
    outputs: tuple[str, ...]
    reads: tuple[str, ...] = ("cohort.zarr",)
    clustered: bool = False


_SCORE = "--confounder center --k 5,11 --m 1,3 --threads 1 -q"

COMMANDS = {
    one.name: one
    for one in (
        Command("ingest", "ingest {i}/x.npy {i}/m.csv {o}/cohort.zarr --chunk-rows 128 -q",
                ("cohort.zarr",), ("x.npy", "m.csv")),
        Command("score small", "score {i}/cohort.zarr " + _SCORE + " --out {o}/r.zarr",
                ("r.zarr",)),
        Command("score", "score {i}/cohort.zarr " + _SCORE + " --memory {memory} --out {o}/r.zarr",
                ("r.zarr",), clustered=True),
        Command("score .nc", "score {i}/cohort.zarr " + _SCORE + " --memory {memory} "
                "--out {o}/r.nc", ("r.nc",), clustered=True),
        Command("score, keeping", "score {i}/cohort.zarr " + _SCORE + " --memory {memory} "
                "--out {o}/r.zarr --keep-neighbors {o}/kept.zarr", ("r.zarr", "kept.zarr")),
        Command("score, kept", "score {i}/cohort.zarr " + _SCORE + " --out {o}/r.zarr "
                "--keep-neighbors {i}/kept.zarr", ("r.zarr",), ("kept.zarr", "cohort.zarr")),
        Command("index ivf", "index {i}/cohort.zarr --kind ivf --threads 1 --shard-rows 500 -q "
                "--out {o}/index.zarr", ("index.zarr",), clustered=True),
        Command("score ivf", "score {i}/cohort.zarr " + _SCORE + " --index {i}/index.zarr "
                "--calibration 100 --out {o}/r.zarr", ("r.zarr",), ("index.zarr", "cohort.zarr"),
                clustered=True),
        Command("score panel", "score {i}/cohort.zarr {i}/cohort2.zarr " + _SCORE + " "
                "--memory {memory} --out {o}/r.zarr", ("r.zarr",), ("cohort.zarr", "cohort2.zarr")),
        Command("probe", "probe {i}/cohort.zarr --confounder center --schedule linear:20:3 "
                "--iterations 3 --validation-fraction 0.2 --threads 1 -q --out {o}/r.zarr",
                ("r.zarr",), clustered=True),
        Command("benchmark", "benchmark {i}/cohort.zarr --label-key label --batch-key center "
                "--method model --clustering kmeans --threads 1 -q --output-dir {o}/tables "
                "--out {o}/r.nc", ("tables", "r.nc"), clustered=True),
        Command("report", "report {i}/r.zarr {i}/r2.nc --draws 50 -q --out {o}/r.html",
                ("r.html",), ("r.zarr", "r2.nc")),
        Command("bootstrap", "bootstrap {i}/r.zarr --draws 50 --threads 1 -q --out {o}/r.zarr",
                ("r.zarr",), ("r.zarr",)),
        Command("bootstrap .nc", "bootstrap {i}/r2.nc --draws 50 --threads 1 -q --out {o}/r.nc",
                ("r.nc",), ("r2.nc",)),
        Command("breakdown", "breakdown {i}/r2.nc --by label,center -q --out {o}/r.csv",
                ("r.csv",), ("r2.nc",)),
        Command("explain", "explain {i}/cohort.zarr tile/00077 --neighbors {i}/kept.zarr -q "
                "--out {o}/r.csv", ("r.csv",), ("kept.zarr", "cohort.zarr")),
    )
}  # fmt: skip


def make_inputs(folder: Path, log: Path, wanted: Iterable[str]) -> str:
    """Make what the commands read, each thing by the command that makes it.

    Returns
    -------
    str
        The least memory in which the store is streamed.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    at = np.arange(N)
    label, center = at % 3, at // 3 % 3
    for name in ("x", "x2"):
        rows = rng.normal(size=(N, FEATURES)) + 0.8 * rng.normal(size=(3, FEATURES))[label]
        np.save(folder / f"{name}.npy", rows.astype(np.float32))
    pd.DataFrame(
        {
            "sample_id": [f"tile/{i:05d}" for i in at],
            "label": np.array(["tumour", "Überklasse", "肿瘤"])[label],
            "center": np.array(["A/1", "B", "C"])[center],
            "group_id": [f"slide-{i // 4}" for i in at],
        }
    ).to_csv(folder / "m.csv", index=False)
    reads = {name for key in wanted for name in COMMANDS[key].reads} | {"cohort.zarr"}
    if "r2.nc" in reads:
        reads.add("cohort2.zarr")

    def made(line: str) -> Ended:
        arguments = line.format(i=folder).split()
        return Child(lambda: command(arguments), log).end()

    def make(name: str, line: str) -> None:
        if name in reads:
            done = made(line)
            if done.code != 0:
                raise RuntimeError(f"{line}: {done.err}")

    make("cohort.zarr", "ingest {i}/x.npy {i}/m.csv {i}/cohort.zarr --chunk-rows 128 -q")
    make("cohort2.zarr", "ingest {i}/x2.npy {i}/m.csv {i}/cohort2.zarr --chunk-rows 128 -q")
    make("index.zarr", "index {i}/cohort.zarr --kind ivf --threads 1 --shard-rows 500 -q "
         "--out {i}/index.zarr")  # fmt: skip
    make("kept.zarr", "score {i}/cohort.zarr " + _SCORE + " --keep-neighbors {i}/kept.zarr")
    make("r.zarr", "score {i}/cohort.zarr " + _SCORE + " --out {i}/r.zarr")
    make("r2.nc", "score {i}/cohort2.zarr " + _SCORE + " --out {i}/r2.nc")
    refusal = made("plan {i}/cohort.zarr --confounder center --k 5,11 --m 1,3 --threads 1 "
                   "--memory 1B").err  # fmt: skip
    (least,) = re.findall(r"at least ([\d.]+) MB", refusal) or ["1000"]
    return f"{float(least) + 0.02:.2f}MB"


@dataclass(frozen=True)
class Clean:
    """What a command does when nothing disturbs it.

    Attributes
    ----------
    content
        By output, what :func:`tests.faults.content.look` says of it.
    seconds
        How long it takes.
    changes
        How many changes of files it makes below the folder of outputs.
    pages
        Of 4 kB, that its files and folders take.
    """

    content: dict[str, dict[str, str]]
    seconds: float
    changes: int
    pages: int


@dataclass(frozen=True)
class Bench:
    """Folders of a run of faults, and the commands that are disturbed.

    Attributes
    ----------
    folder
        Of everything.
    memory
        What ``{memory}`` stands for.
    clean
        By command.
    """

    folder: Path
    memory: str
    clean: dict[str, Clean]

    @property
    def inputs(self) -> Path:
        """Folder of the inputs, which no fault may touch."""
        return self.folder / "inputs"

    def arguments(self, one: Command, out: Path, inputs: Path | None = None) -> list[str]:
        """Arguments of a command."""
        filled = one.line.format(i=inputs or self.inputs, o=out, memory=self.memory)
        return filled.split()


def set_up(folder: Path, names: Iterable[str], tell: Callable[[str], object]) -> Bench:
    """Make the inputs, run every command without a fault, twice, and compare.

    The first run is in this process: it compiles what all forks have from then on.
    """
    from click.testing import CliRunner

    from croma_dask.cli import main

    names = list(names)
    log = folder / "log"
    log.mkdir(parents=True)
    memory = make_inputs(folder / "inputs", log, names)
    bench = Bench(folder, memory, {})
    for name in names:
        one = COMMANDS[name]
        first, second = folder / "clean" / f"{name} 1", folder / "clean" / f"{name} 2"
        first, second = (Path(str(p).replace(" ", "_").replace(",", "")) for p in (first, second))
        for out in (first, second):
            out.mkdir(parents=True)
        done = CliRunner().invoke(main, bench.arguments(one, first), catch_exceptions=False)
        if done.exit_code != 0:
            raise RuntimeError(f"{name}: {done.stderr}")
        counted = folder / "log" / "changes"
        counted.write_bytes(b"")

        def again(one: Command = one, out: Path = second, counted: Path = counted) -> None:
            count_changes(counted, out)
            command(bench.arguments(one, out))

        child = Child(again, log)
        ended = child.end(5 * PATIENCE)
        seconds = time.monotonic() - child.begun
        if ended.code != 0:
            raise RuntimeError(f"{name}: {ended.err}")
        content, other = (
            {output: ask(lambda p=out / output: look(p), log) for output in one.outputs}
            for out in (first, second)
        )
        if content != other or any(
            not found or any(text.startswith("refused") for text in found.values())
            for found in content.values()
        ):
            raise RuntimeError(f"{name}: two clean runs differ: {content}, {other}")
        pages = sum(-(-p.stat().st_size // 4096) for p in second.rglob("*") if p.is_file())
        tell(f"{name}: {seconds:.1f} s, {counted.stat().st_size} changes of files")
        bench.clean[name] = Clean(content, seconds, counted.stat().st_size, pages)
    return bench
