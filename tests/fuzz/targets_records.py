"""Targets: files that a run goes on from, and small files of arguments.

Records of an embedding benchmark, scratch of a run that was interrupted, schedules and splits.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from croma_dask.errors import StoreError
from croma_dask.index.array_files import read_arrays
from tests.fuzz.harness import Target, Tree, load_tree, save_tree
from tests.fuzz.targets_stores import cohort
from tests.fuzz.targets_stores import made as made_store
from tests.helpers.engines import engine

__all__ = ["TARGETS"]

KEYS: dict[Any, str] = {"bio_conservation": "k1", "batch_mixing": "k2"}


# --- records of a benchmark ---


def _record_seeds(folder: Path) -> None:
    from croma_dask.embedding.outcome import Counts, Outcome, Scores
    from croma_dask.embedding.table_record import write_sample

    scores = Scores(
        "lung", "PCA",
        {"NMI": Outcome(0.5, "", "ok"), "kBET": Outcome(float("nan"), "", "undefined: one batch")},
        bio=Counts(6, 2, 3, None), batch=Counts(6, 2, 3, 2),
    )  # fmt: skip
    scores.predictions = np.array([0, 1, 0, 1, -1, 0], np.int32)
    scores.sample_values = {"silhouette": np.arange(6.0)}
    write_sample(
        folder / "out", scores, clustering="leiden", keys=KEYS, ids=list("abcdef"),
        labels=list("xxyyzz"), sources={"bio_conservation": {"a": 1}},
    )  # fmt: skip


def _read_record(path: Path, work: Path) -> None:
    from croma_dask.embedding.table_record import read_sample
    from croma_dask.embedding.table_stale import drop_stale, read_all, read_sources

    about: Any = {"clustering": "leiden", "keys": KEYS}
    copy_own(path, work / "out")
    path = work / "out"
    read_all(path, "lung", "PCA", **about)
    read_sources(path, "lung", "PCA", clustering="leiden")
    for arrays in (True, False):
        found = read_sample(path, "lung", "PCA", metrics=["NMI", "kBET"], arrays=arrays, **about)
        if found is not None and "NMI" in found.outcomes:
            float(found.outcomes["NMI"].value)
    drop_stale(path, "lung", "PCA", groups=["bio_conservation", "batch_mixing"], **about)


# --- scratch ---


@functools.cache
def _scratch() -> Path:
    """Make scratch of a streamed panel that was interrupted, once a process."""
    folder = Path(tempfile.mkdtemp(prefix="croma_dask_seeds_")) / "scratch"
    _score(folder)
    return folder


def _score(scratch: Path) -> None:
    """Score a panel in ranges, going on from scratch, if there is any."""
    import croma_dask as cd

    x, frame = cohort()
    with engine("streamed", range_rows=16):
        cd.score(
            {"a": x, "b": x[:, ::-1].copy()}, frame, confounder="center", k_candidates=(3,), m=2,
            scratch=str(scratch), keep_scratch=True, quiet=True, metrics=("RI", "CRoMa"),
        )  # fmt: skip


def _scratch_seeds(folder: Path) -> None:
    _scratch_files()
    shutil.copytree(_scratch(), folder / "scratch")
    # One that was interrupted: a range is not finished, and nothing says that the run ended.
    cut = folder / "cut"
    shutil.copytree(_scratch(), cut)
    for path in [*cut.rglob("finished"), *cut.rglob("final.npz"), *cut.glob("*/model-*.npz")]:
        path.unlink()


def _resume(path: Path, work: Path) -> None:
    scratch = work / "scratch"
    copy_own(path, scratch)
    for file in [one for one in scratch.rglob("*.npz") if one.is_file()]:
        original = _scratch_files().get(f"scratch/{file.relative_to(scratch)}")
        try:
            read_arrays(file)
        except StoreError:
            continue
        # As a whole it is what a run has written, if not in this place: forged, not damaged.
        file.unlink()
        if original is not None:
            file.write_bytes(original)
    _score(scratch)


@functools.cache
def _scratch_files() -> Tree:
    """Keep what is compared with in memory: nothing but the input is opened."""
    return load_tree(_scratch())


@functools.cache
def _store_files() -> Tree:
    return load_tree(made_store() / "plain.zarr")


def copy_own(path: Path, place: Path) -> None:
    """Copy a folder that is the user's own, closed to others, without the links in it.

    What a run keeps for itself is looked at for damage, not for malice: whoever can write there
    can do so in the user's name.
    """
    shutil.copytree(path, place, symlinks=True)
    for one in [place, *place.rglob("*")]:
        if one.is_symlink():
            one.unlink()


# --- schedules and splits ---

SCHEDULE = [
    [[[0, 0, 4], [0, 1, 4], [1, 0, 4], [1, 1, 4]], 4],
    [[[0, 0, 0], [0, 1, 8], [1, 0, 8], [1, 1, 0]], 8],
]

HOSTILE_NUMBERS = [10**30, -1, 0.5, 1e308, "4", None, True, [], {}, 2**63, 2**53 + 1]


def _schedule_seeds(folder: Path) -> None:
    _store_files()
    (folder / "plain.json").write_text(json.dumps(SCHEDULE))
    (folder / "empty.json").write_text("[]")
    (folder / "deep.json").write_text("[" * 100_000)
    for at, number in enumerate(HOSTILE_NUMBERS):
        changed = json.loads(json.dumps(SCHEDULE))
        changed[0][0][0][at % 3] = number
        (folder / f"number-{at}.json").write_text(json.dumps(changed))
        (folder / f"slides-{at}.json").write_text(json.dumps([[SCHEDULE[0][0], number]]))
    (folder / "words.json").write_text('[[[[NaN, Infinity, "a"]], 1], {"a": 1, "a": 2}]')


def _run_schedule(path: Path, work: Path) -> None:
    from click.testing import CliRunner

    from croma_dask.cli import main
    from croma_dask.cli_probe import _read_schedule
    from croma_dask.probe.schedule import schedule_cramers_v

    read = _read_schedule(str(path), {})
    with contextlib.suppress(ValueError, TypeError):
        schedule_cramers_v(read)  # a function for schedules that are schedules
    store = save_tree(_store_files(), work)
    arguments = [
        "probe", str(store), "--confounder", "center", "--schedule",
        str(path), "--iterations", "1", "--plan",
    ]  # fmt: skip
    done = CliRunner().invoke(main, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception


SPLITS = {
    "train": {"A": [["c1", "c2"], ["c1"]], "B": [["c4"], ["c4"]]},
    "test": {"A": [["c3"], ["c2", "c3"]], "B": [["c5"], ["c5"]]},
}


def _split_seeds(folder: Path) -> None:
    text = json.dumps(SPLITS).encode()
    (folder / "plain.json").write_bytes(text)
    (folder / "packed.json.gz").write_bytes(gzip.compress(text, mtime=0))
    (folder / "bomb.json.gz").write_bytes(gzip.compress(b" " * (300 << 20), 9, mtime=0))
    (folder / "deep.json").write_text('{"train": ' + "[" * 100_000)
    for at, value in enumerate([None, 1, "A", [], {}, [1], [[1]], [None], {"A": 1}, {"A": [[[]]]}]):
        (folder / f"odd-{at}.json").write_text(json.dumps({**SPLITS, "test": value}))
        (folder / f"cases-{at}.json").write_text(
            json.dumps({**SPLITS, "test": {"A": value, "B": value}})
        )


def _run_splits(path: Path, work: Path) -> None:
    from croma_dask.probe.tolkach import tolkach_arrangement

    cases = [f"c{i % 5 + 1}" for i in range(20)]
    arrangement = tolkach_arrangement(path, cases, centers=["A", "B"])
    cells = [[[(i,) for i in range(4)]], [[(i,) for i in range(4, 8)]]]
    arrangement(cells, random.Random(0))


def mutate_json_numbers(content: bytes, rng: random.Random) -> bytes:
    """Put a number that is awkward in the place of another."""
    text = content.decode("utf-8", "replace")
    at = [i for i, sign in enumerate(text) if sign.isdigit()]
    if not at:
        return content
    where = rng.choice(at)
    return (text[:where] + json.dumps(rng.choice(HOSTILE_NUMBERS)) + text[where + 1 :]).encode()


NUMBERS = {".json": mutate_json_numbers}

TARGETS = [
    Target("benchmark-record", _record_seeds, _read_record, (OSError,), mutators=NUMBERS),
    Target("scratch", _scratch_seeds, _resume, (OSError,), slow=True),
    Target("schedule", _schedule_seeds, _run_schedule, mutators=NUMBERS),
    Target("splits", _split_seeds, _run_splits, mutators=NUMBERS),
]
