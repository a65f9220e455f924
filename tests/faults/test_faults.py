"""One fault of each kind, cheaply; the long run; and that the harness sees what is wrong."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import croma_dask as cd
from croma_dask import whole_folders
from croma_dask.cluster import known_workers
from croma_dask.errors import StoreError
from croma_dask.index.scratch import Scratch
from croma_dask.one_writer import one_writer
from tests.faults import trial as module
from tests.faults.content import look
from tests.faults.damage import hurt
from tests.faults.forks import Ended
from tests.faults.harness import Plan, kinds
from tests.faults.trial import Outcome, Trial, Wrong
from tests.faults.work import COMMANDS, Bench, Clean, Command
from tests.helpers.marks import first

ROOT = Path(__file__).resolve().parents[2]
MOUNTED = ("disk", "tmp", "readonly")
"""Kinds that need a disk of their own, which not every user may mount."""


def run_harness(tmp_path: Path, *options: object) -> list[dict[str, Any]]:
    """Run it in a process of its own, which may fork; return its log."""
    log = tmp_path / "log.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", *map(str, options),
         "--folder", tmp_path / "faults", "--log", log],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    found = [json.loads(line) for line in log.read_text().splitlines()]
    assert done.stdout.splitlines()[0].startswith("| fault | how injected | tried |")
    for entry in found:
        assert entry["verdict"] != "WRONG", entry
        assert entry["verdict"] != "skipped" or (entry["kind"] in MOUNTED and entry["said"])
    return found


def test_every_kind__once_and_none_is_wrong(tmp_path: Path) -> None:
    every = list(kinds(0))
    every.remove("overwrite")  # of commands that compile: test_put__... is the quick one
    found = run_harness(
        tmp_path, "--faults", len(every), "--seed", 3, "--pause", 0.5,
        "--commands", "ingest;index ivf",
    )  # fmt: skip
    assert [entry["kind"] for entry in found] == every
    if skipped := [entry["said"] for entry in found if entry["verdict"] == "skipped"]:
        pytest.skip(f"all but {len(skipped)} kinds passed: {skipped[0]}")


@pytest.mark.slow
def test_two_hundred_faults__none_is_wrong(tmp_path: Path) -> None:
    found = run_harness(tmp_path, "--faults", 200, "--seed", 0)
    assert sum(entry["verdict"] != "skipped" for entry in found) >= 150
    assert {entry["command"] for entry in found} == set(COMMANDS)


def test_plan__follows_from_the_seed_and_meets_every_kind() -> None:
    plans = [Plan(kinds(1), list(kinds(1)), list(COMMANDS), seed) for seed in (0, 0, 1)]
    told = [[plan.fault(number)[:2] for number in range(60)] for plan in plans]
    assert told[0] == told[1]
    assert told[0] != told[2]
    assert {name for name, _ in told[0]} == set(kinds(1))


# ---- what it has found ----


def test_put__at_no_moment_is_nothing_there(tmp_path: Path) -> None:
    """A run that replaces a result was killed between two renames: the place was empty."""
    place, partial = tmp_path / "r.zarr", tmp_path / "new"
    for folder in (place, partial):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    gone: list[bool] = []
    watching = [True]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event.startswith(("os.", "shutil.")):
            gone.append(not os.path.lexists(place))

    sys.addaudithook(hook)
    whole_folders.put(partial, place, check=lambda place: None)
    watching.clear()
    assert gone
    assert not any(gone)
    assert (place / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["r.zarr"]


def test_one_writer__the_second_is_refused_and_a_dead_one_is_not_waited_for(
    tmp_path: Path,
) -> None:
    """Two ingests at one place mixed their arrays."""
    place = tmp_path / "cohort.zarr"
    with one_writer(place):
        with pytest.raises(StoreError, match="is being written by another process"):
            with one_writer(place):
                pass
        with one_writer(tmp_path / "other.zarr"):
            pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".cohort.zarr.writing").touch()
    with one_writer(place):
        pass
    assert list(tmp_path.iterdir()) == []


def test_ingest__killed_in_its_very_first_write_starts_afresh(tmp_path: Path) -> None:
    """Zarr took what was left of that for data, and no option led on."""
    place = tmp_path / "cohort.zarr"
    place.mkdir()
    (place / f"zarr.{32 * 'a'}.partial").write_bytes(b"{")
    (place / "mine.partial").write_bytes(b"not of zarr")
    with pytest.raises(StoreError, match="holds 'mine.partial' already, which is no store"):
        cd.write_cohort(place, *cohort())
    (place / "mine.partial").unlink()
    cd.write_cohort(place, *cohort())
    cd.open_cohort(place)
    assert not list(place.glob("*.partial"))


def test_n_failing__a_range_without_its_lists_is_not_finished(tmp_path: Path) -> None:
    """A run killed while it deleted its folder left the marker alone: each rerun looked for lists
    that were gone."""
    scratch = Scratch(str(tmp_path))
    scratch.write("range-00000/codes.npz", {"a": np.zeros(1)})
    scratch.write_final(0, np.zeros((2, 1), np.int32), np.zeros((2, 3)), 1)
    assert scratch.n_failing(0) == 1
    (tmp_path / "range-00000" / "distance.bin").unlink()
    assert scratch.n_failing(0) is None


def test_index__damaged_metadata_of_an_unfinished_one_starts_afresh(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended in a traceback of whoever parsed it."""
    store = cd.write_cohort(tmp_path / "cohort.zarr", *cohort())
    expected = cd.build_index(store, "ivf", path=tmp_path / "a.zarr")
    place = tmp_path / "b.zarr"
    cd.build_index(store, "ivf", path=place)
    root = json.loads((place / "zarr.json").read_text())
    root["attributes"] |= {"status": "writing", "partition": True}
    del root["consolidated_metadata"]
    (place / "zarr.json").write_text(json.dumps(root))
    (place / "centres" / "zarr.json").write_bytes(b'{"shape": [')
    found = cd.build_index(store, "ivf", path=place)
    assert "starting afresh" in caplog.text
    assert found.build_id == expected.build_id


def test_known_workers__of_a_scheduler_that_is_gone_are_an_error() -> None:
    """A client that had lost its scheduler knew no workers, not even that there are any."""

    class Lost:
        def scheduler_info(self, n_workers: int) -> dict[str, str]:
            return {"type": "Scheduler"}

    with pytest.raises(ConnectionError, match="scheduler of the cluster is gone"):
        known_workers(Lost())
    assert known_workers(None) == []


def cohort() -> tuple[np.ndarray, pd.DataFrame]:
    at = np.arange(60)
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    frame = {"sample_id": at.astype(str), "label": at % 2, "center": at // 2 % 2, "group_id": at}
    return x, pd.DataFrame({name: np.asarray(column).astype(str) for name, column in frame.items()})


# ---- the harness sees what is wrong ----


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """Trial of a command that leaves one table; nothing is forked here."""
    monkeypatch.setattr(module, "ask", lambda question, folder: question())
    expected = tmp_path / "clean.csv"
    expected.write_text("a,b\n1,2\n")
    one = Command("table", "", ("r.csv",))
    clean = Clean({"r.csv": look(expected)}, 1.0, 10, 1)
    bench = Bench(tmp_path, "1GB", {one.name: clean})
    return Trial(bench, one, random.Random(0), tmp_path / "fault")


DONE = Ended(0, "", "")
KILLED = Ended(-9, "", "")
REFUSED = Ended(2, "", "error: no room\n")


def test_settle__what_a_clean_run_leaves_is_right(trial: Trial) -> None:
    (trial.out / "r.csv").write_text("a,b\n1,2\n")
    assert trial.settle(DONE)
    assert not trial.settle(KILLED)
    assert not trial.settle(REFUSED)


@pytest.mark.parametrize("ended", [DONE, KILLED, REFUSED])
def test_settle__half_a_result_that_opens_is_wrong(trial: Trial, ended: Ended) -> None:
    (trial.out / "r.csv").write_text("a,b\n1")
    with pytest.raises(Wrong, match="not what a clean run leaves"):
        trial.settle(ended)


def test_settle__done_without_a_result_is_wrong(trial: Trial) -> None:
    with pytest.raises(Wrong, match="lacks"):
        trial.settle(DONE)
    assert not trial.settle(KILLED)


@pytest.mark.parametrize(
    ("ended", "complaint"),
    [
        (Ended(1, "", "Traceback (most recent call last):\nKeyError: 3\n"), "a traceback"),
        (Ended(2, "", ""), "0 errors"),
        (Ended(2, "", "error: a\nerror: b\n"), "2 errors"),
        (Ended(-11, "", "error: a\n"), "exit code -11"),
        (Ended(None, "", ""), "hung"),
    ],
)
def test_settle__a_refusal_that_is_not_clear_is_wrong(
    trial: Trial, ended: Ended, complaint: str
) -> None:
    with pytest.raises(Wrong, match=complaint):
        trial.settle(ended)


def test_again__no_way_on_is_wrong(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "run", lambda *more: REFUSED)
    with pytest.raises(Wrong, match="no way on"):
        trial.again()


def test_again__takes_the_way_that_a_refusal_names(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*more: str) -> Ended:
        if not more:
            return REFUSED
        (trial.out / "r.csv").write_text("a,b\n1,2\n")
        return DONE

    monkeypatch.setattr(trial, "run", run)
    assert trial.after(KILLED, "how") == Outcome("refused clearly", "how", "error: no room")


@pytest.mark.parametrize("seed", range(12))
def test_hurt__changes_the_file(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = bytes(range(1, 251)) * 5
    path.write_bytes(content)
    assert hurt(path, random.Random(seed))
    assert not path.exists() or path.read_bytes() != content


@pytest.mark.parametrize("kind", first(1, ["ivf", "pynndescent"]))
def test_index__damaged_shards_of_an_unfinished_one_are_made_again(
    kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They became part of an index that said it was whole."""
    store = cd.write_cohort(tmp_path / "cohort.zarr", *cohort())
    place = tmp_path / "b.zarr"
    cd.build_index(store, kind, path=place)
    whole = {p.relative_to(place): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    chunks = [path for path in whole if path.parts[0].startswith("shard-") and "c" in path.parts]
    assert chunks
    inside = [path for path in whole if path.parts[0].startswith("shard-") and len(path.parts) > 2]
    metadata = [path for path in inside if path.name == "zarr.json"]
    for path in [*chunks[:: max(1, len(chunks) // 3)], *metadata[:2]]:
        for damage in ("flipped", "missing"):
            root = json.loads(whole[Path("zarr.json")])
            root["attributes"]["status"] = "writing"
            root["attributes"].pop("layout_checksum")
            root.pop("consolidated_metadata")
            (place / "zarr.json").write_text(json.dumps(root))
            if damage == "missing":
                (place / path).unlink()
            elif path in metadata:
                other = whole[path].replace(b"float32", b"float64")
                (place / path).write_bytes(other if other != whole[path] else other + b" ")
            else:
                flipped = bytearray(whole[path])
                flipped[len(flipped) // 2] ^= 4
                (place / path).write_bytes(flipped)
            caplog.clear()
            cd.build_index(store, kind, path=place)
            assert "making it again" in caplog.text
            found = {p.relative_to(place): p.read_bytes() for p in place.rglob("*") if p.is_file()}
            assert found.keys() == whole.keys()
            assert [p for p in whole if p.name != "zarr.json" and found[p] != whole[p]] == []
