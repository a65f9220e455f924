"""`croma-dask index`, and its index in `score` and `plan`: files, messages, exit codes."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from click.testing import Result

import croma_dask as cd
from croma_dask import build, cost
from tests.faces.conftest import SCORE, make_cohort
from tests.faces.test_cli_score import METRICS, assert_one_line

# Small cohorts leave some rows without a typed neighbour within k.
pytestmark = pytest.mark.filterwarnings("ignore:.*units are undefined")

KIND = "ivf"
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Not under the user's own temporary folder, where another run might find it."""
    with cd.set_options(scratch=str(tmp_path_factory.mktemp("scratch"))):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that follow nothing: a few clusters are far from enough of them."""
    place = tmp_path_factory.mktemp("cli-index") / "cohort.zarr"
    return Path(cd.write_cohort(place, *make_cohort(1_200, n_features=10)))


@pytest.fixture
def cohort(source: Path, tmp_path: Path) -> Path:
    """A store of the test's own: its index goes beside it."""
    return Path(shutil.copytree(source, tmp_path / "cohort.zarr"))


@pytest.fixture
def beside(cohort: Path) -> Path:
    return cohort.with_name(f"cohort.{KIND}.zarr")


@pytest.fixture
def index(run: Run, cohort: Path, beside: Path) -> Path:
    """An index of some forty clusters, beside the store."""
    made = run("index", cohort, "--kind", KIND, "--cluster-rows", 30, "-q")
    assert (made.exit_code, made.stdout, made.stderr) == (0, "", "")
    return beside


def times(place: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}


def edit(place: Path, **attributes: Any) -> None:
    meta = json.loads((place / "zarr.json").read_text())
    meta["attributes"].update(attributes)
    (place / "zarr.json").write_text(json.dumps(meta))


# ---- index -----------------------------------------------------------------------------------


def test_index__goes_beside_the_store_and_says_what_it_is(
    run: Run, cohort: Path, beside: Path
) -> None:
    done = run("index", cohort, "--kind", KIND, "--cluster-rows", 30, "--shard-rows", 500)
    assert (done.exit_code, done.stderr) == (0, "")
    made = cd.open_index(beside)
    told = f"{beside}: {KIND}, 1,200 rows in {made.partition.n_clusters} clusters and 3 shards\n"
    assert done.stdout == told
    assert made.partition.n_clusters > 30
    assert sorted(p.name for p in cohort.parent.iterdir()) == [beside.name, cohort.name]


def test_index__is_the_one_that_python_builds(run: Run, cohort: Path, tmp_path: Path) -> None:
    options = {"cluster_rows": 40, "shard_rows": 300, "seed": 5}
    flags = [part for k, v in options.items() for part in (f"--{k.replace('_', '-')}", v)]
    place = tmp_path / "elsewhere" / "i.zarr"
    assert run("index", cohort, "--kind", KIND, "--out", place, *flags).exit_code == 0
    made, other = cd.open_index(place), cd.build_index(
        cohort, KIND, path=tmp_path / "other.zarr", **options
    )  # fmt: skip
    np.testing.assert_array_equal(made.partition.order, other.partition.order)
    np.testing.assert_array_equal(made.partition.shard_edges, other.partition.shard_edges)
    assert made.parameters == other.parameters


def test_index__that_is_there_stays(run: Run, cohort: Path, index: Path) -> None:
    before = times(index)
    again = run("index", cohort, "--kind", KIND, "--cluster-rows", 30)
    assert (again.exit_code, again.stderr) == (0, "")
    assert str(index) in again.stdout
    assert times(index) == before


def test_index__another_one_is_replaced_by_overwrite_only(
    run: Run, cohort: Path, index: Path
) -> None:
    before = times(index)
    other = run("index", cohort, "--kind", KIND, "--cluster-rows", 60)
    assert other.exit_code == 2
    assert_one_line(other.stderr, "another index (parameters differs", "--overwrite")
    assert times(index) == before
    done = run("index", cohort, "--kind", KIND, "--cluster-rows", 60, "--overwrite", "-q")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert cd.open_index(index).parameters["cluster_rows"] == 60


def test_index__that_is_stale_is_replaced_by_overwrite_only(
    run: Run, cohort: Path, index: Path
) -> None:
    shutil.rmtree(cohort)
    cd.write_cohort(cohort, *make_cohort(900, seed=8))
    build_again = ("index", cohort, "--kind", KIND, "--cluster-rows", 30)
    for command in (("score", cohort, *SCORE, "--index", KIND), build_again):
        refused = run(*command)
        assert refused.exit_code == 2
        assert_one_line(refused.stderr, str(index), "fingerprint", "--overwrite")
    assert run(*build_again, "--overwrite").exit_code == 0
    assert run("score", cohort, *SCORE, "--index", KIND, "-q").exit_code == 0


@pytest.mark.parametrize("flags", [(), ("--no-resume",)])
def test_index__interrupted_goes_on_or_starts_afresh(
    flags: tuple[str, ...], run: Run, cohort: Path, beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("index", cohort, "--kind", KIND, "--cluster-rows", 30, "--shard-rows", 250)
    command += ("--threads", 1)
    calls = iter(range(100))
    real = build.write_shard

    def interrupted(*args: Any) -> int:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(build, "write_shard", interrupted)
        cut = run(*command)
    assert cut.exit_code == 130
    assert_one_line(cut.stderr, "interrupted")
    before = {path: at for path, at in times(beside).items() if "rows" in path.parts}
    assert before
    refused = run("score", cohort, *SCORE, "--index", beside)
    assert refused.exit_code == 2
    assert_one_line(refused.stderr, "started and not finished", "croma-dask index")
    done = run(*command, *flags)
    assert done.exit_code == 0
    assert "6 shards" in done.stdout
    assert (before.items() <= times(beside).items()) == (not flags)


def test_index__help_shows_an_example_and_offers_every_argument(run: Run) -> None:
    from croma_dask.cli_index import index as command

    shown = run("index", "--help")
    assert shown.exit_code == 0
    assert f"croma-dask index cohort.zarr --kind {KIND}" in shown.stdout
    offered = {parameter.name for parameter in command.params}
    assert set(inspect.signature(cd.build_index).parameters) - {"cohort", "client"} <= offered


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (("--kind", "hnsw"), ("'hnsw' is not one of",)),
        (("--cluster-rows", 0), ("--cluster-rows",)),
        (("--seed", -1), ("--seed",)),
        (("--seed", 1 << 33), ("seed must be", "2**32")),
        (("--memory", "much"), ("memory 'much' is no size",)),
        (("--workers", 2, "--scheduler", "127.0.0.1:1"), ("--workers", "--scheduler")),
        (("--storage-option", "x"), ("NAME=VALUE",)),
    ],
)
def test_index__bad_arguments(
    flags: tuple[object, ...], parts: tuple[str, ...], run: Run, cohort: Path
) -> None:
    done = run("index", cohort, *(() if "--kind" in flags else ("--kind", KIND)), *flags)
    assert done.exit_code == 2
    assert_one_line(done.stderr, *parts)
    assert [p.name for p in cohort.parent.iterdir()] == [cohort.name]


@pytest.mark.parametrize("what", ["nothing", "folder", "file", "half a store"])
def test_index__of_what_is_no_store(what: str, run: Run, cohort: Path, tmp_path: Path) -> None:
    place = tmp_path / "what.zarr"
    if what == "folder":
        place.mkdir()
        (place / "a.txt").touch()
    elif what == "file":
        place.touch()
    elif what == "half a store":
        edit(cohort, status="writing")
        place = cohort
    done = run("index", place, "--kind", KIND)
    assert done.exit_code == 2
    assert_one_line(done.stderr, str(place))
    assert not place.with_name(f"what.{KIND}.zarr").exists()


def test_index__leaves_what_is_not_its_own_alone(run: Run, cohort: Path, tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.txt").write_text("precious")
    for flags in ((), ("--overwrite",)):
        for place in (folder, cohort):
            before = times(tmp_path)
            done = run("index", cohort, "--kind", KIND, "--out", place, *flags)
            assert done.exit_code == 2
            assert_one_line(done.stderr, "left alone")
            assert times(tmp_path) == before


# ---- score -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["kind", "path"])
def test_score__through_an_index_is_what_python_returns(
    form: str, run: Run, cohort: Path, index: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.nc"
    wanted = KIND if form == "kind" else str(index)
    flags = ("--recall", 0.99, "--calibration", 200, "--seed", 3, "--start-k", 50)
    before = times(index)
    done = run("score", cohort, *SCORE, "--index", wanted, *flags, "--out", out)
    assert done.exit_code == 0
    assert "warning" not in done.stderr
    assert all(name in done.stdout for name in METRICS)
    expected = cd.score(
        cohort, confounder="center", k_candidates=(15, 21), m=(1, 3), index=wanted, recall=0.99,
        calibration=200, seed=3, start_k=50,
    )  # fmt: skip
    with xr.open_datatree(out) as found:
        for name in METRICS:
            mine, other = found[name].to_dataset().load(), expected[name].to_dataset()
            assert mine.attrs["index"] == KIND
            assert mine.attrs["calibration_seed"] == 3
            for field, array in other.data_vars.items():
                assert mine[field].values.tobytes() == array.values.tobytes(), field
    assert times(index) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([cohort.name, index.name, out.name])


def test_score__builds_the_index_that_is_not_there(run: Run, cohort: Path, beside: Path) -> None:
    out = cohort.with_name("r.json")
    done = run("score", cohort, *SCORE, "--index", KIND, "-q", "--out", out)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert cd.open_index(beside).parameters["cluster_rows"] is None
    told = json.loads(out.read_text())
    attrs = told["metrics"]["RI"]["attrs"] if "attrs" in told["metrics"]["RI"] else told["attrs"]
    assert attrs.get("index", KIND) == KIND


@pytest.mark.filterwarnings("default::croma_dask.RecallWarning")
def test_score__that_misses_too_much_warns_in_one_line(run: Run, cohort: Path, index: Path) -> None:
    done = run("score", cohort, *SCORE, "--index", KIND, "--probes", 1, "--start-k", 1)
    assert done.exit_code == 0
    (line,) = [text for text in done.stderr.splitlines() if "approximate search" in text]
    assert line.startswith("warning: the approximate search has found only")
    assert "raise probes" in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (("--index", "hnsw"), ("index is 'exact', 'auto'",)),
        (("--index", "./none.zarr"), ("none.zarr", "build one with build_index")),
        (("--index", KIND, "--recall", 2), ("recall must be in (0, 1]",)),
        (("--index", KIND, "--probes", 0), ("--probes",)),
        (("--index", KIND, "--calibration", 5), ("calibration must be at least 100",)),
        (("--index", KIND, "--seed", -1), ("seed must be 0 or larger",)),
        (("--index", KIND, "--start-k", 0), ("start_k must be 1 or larger",)),
        (("--index", KIND, "--k-growth-factor", 1), ("k_growth_factor must be above 1",)),
        (("--index", KIND, "--keep-neighbors", "kept"), ("keep_neighbors", "--index exact")),
    ],
)
def test_score__bad_arguments_of_an_index(
    flags: tuple[object, ...], parts: tuple[str, ...], run: Run, cohort: Path
) -> None:
    done = run("score", cohort, *SCORE, *flags)
    assert done.exit_code == 2
    assert_one_line(done.stderr, *parts)
    assert [p.name for p in cohort.parent.iterdir()] == [cohort.name]


def test_score__refuses_a_damaged_index_in_one_line(run: Run, cohort: Path, index: Path) -> None:
    shutil.rmtree(index / "centres")
    done = run("score", cohort, *SCORE, "--index", KIND)
    assert done.exit_code == 2
    assert_one_line(done.stderr, str(index), "damaged", "croma-dask index --overwrite")


def test_score__paired_is_exact(run: Run, paired_store: str) -> None:
    paired = ("score", paired_store, "--confounder", "center", "--design", "paired_2x2")
    paired += ("--k", "5", "--m", "1")
    for kind in (KIND, "pynndescent"):
        done = run(*paired, "--index", kind)
        assert done.exit_code == 2
        assert_one_line(done.stderr, "design 'all'", "--index exact")
    assert run(*paired, "--index", "auto").exit_code == 0
    assert not Path(paired_store.replace(".zarr", f".{KIND}.zarr")).exists()


def test_memory__is_refused_with_its_own_exit_code(run: Run, cohort: Path, beside: Path) -> None:
    for command in ("score", "plan"):
        done = run(command, cohort, "--confounder", "center", "--index", KIND, "--memory", "330MB")
        assert done.exit_code == 3
        assert_one_line(done.stderr, "raise memory= (--memory)")
    assert not beside.exists()


# ---- plan ------------------------------------------------------------------------------------


def lines_of(stdout: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in stdout.splitlines())


def test_plan__tells_what_each_index_costs_and_runs_nothing(
    run: Run, cohort: Path, beside: Path
) -> None:
    told = {}
    for index in ("exact", "auto", KIND):
        done = run("plan", cohort, "--confounder", "center", "--index", index)
        assert (done.exit_code, done.stderr) == (0, "")
        told[index] = lines_of(done.stdout)
        assert re.match(r"exact [\d.]+ s, ivf about .*; auto takes exact: ", told[index]["index"])
    assert told["exact"]["search"].startswith("exact, ")
    assert told["auto"]["search"] == told["exact"]["search"]
    assert told[KIND]["search"].startswith(f"approximate ({KIND}), through an index")
    assert not beside.exists()


def test_plan__auto_says_why_it_takes_the_other_one(
    run: Run, cohort: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "_PATIENCE", 0.0)
    monkeypatch.setattr(cost, "_WORTH", 0.0)
    done = run("plan", cohort, "--confounder", "center", "--index", "auto")
    assert done.exit_code == 0
    told = lines_of(done.stdout)
    assert re.search(rf"auto takes {KIND}: [\d.]+ times as fast as exact", told["index"])
    assert told["search"].startswith(f"approximate ({KIND})")


def test_plan__of_an_index_by_its_place(run: Run, cohort: Path, index: Path) -> None:
    done = run("plan", cohort, "--confounder", "center", "--index", index)
    assert done.exit_code == 0
    assert lines_of(done.stdout)["search"].startswith("approximate (")
    missing = run("plan", cohort, "--confounder", "center", "--index", "hnsw")
    assert missing.exit_code == 2
    assert_one_line(missing.stderr, "index is 'exact', 'auto'")
