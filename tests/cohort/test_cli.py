"""The command line: what it prints, and the exit codes that workflow managers rely on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import croma_dask.cli as cli
from croma_dask.cohort import StoredCohort
from croma_dask.errors import MemoryLimitError, SupportError


@pytest.fixture
def files(tmp_path: Path, rng: np.random.Generator) -> tuple[str, str, str]:
    np.save(tmp_path / "x.npy", rng.standard_normal((40, 3)).astype("f4"))
    frame = pd.DataFrame(
        {
            "tile": [f"t{i}" for i in range(40)],
            "diagnosis": np.where(np.arange(40) % 2, "tumour", "normal"),
            "slide_id": [f"s{i // 4}" for i in range(40)],
            "center": ["", *("ABC"[i % 3] for i in range(1, 40))],
        }
    )
    frame.to_csv(tmp_path / "m.csv", index=False)
    return str(tmp_path / "x.npy"), str(tmp_path / "m.csv"), str(tmp_path / "c.zarr")


ROLES = ["--label", "diagnosis", "--group", "slide_id", "--sample-id", "tile"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, [str(a) for a in arguments], catch_exceptions=False)


def test_ingest_and_info(files):
    result = run("ingest", *files, *ROLES)
    assert result.exit_code == 0, result.output
    assert "40 samples x 3 features (float32)" in result.stdout
    store = StoredCohort(files[2])
    assert store.codes("label")[1] == ["normal", "tumour"]
    result = run("info", files[2], "--verify")
    assert result.exit_code == 0
    for text in (
        "samples      40",
        "features     3 float32",
        store.fingerprint,
        store.embedding_fingerprint,
        "tile       text",
        "center     3 levels, 1 missing: A, B, C",
        "group_id   10 levels: s0, s1, s2, s3, s4, …",
        "label x center",
        "verified",
    ):
        assert text in result.stdout, result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["A", "B", "C"] in lines
    assert ["tumour", "7", "7", "6"] in lines
    facts = json.loads(run("info", files[2], "--json").stdout)
    assert facts["crosstab"] == {
        "center": {"normal": {"A": 6, "B": 6, "C": 7}, "tumour": {"A": 7, "B": 7, "C": 6}}
    }
    assert facts["columns"]["center"] == {
        "kind": "category",
        "levels": 3,
        "missing": 1,
        "first_levels": ["A", "B", "C"],
    }


def test_ingest__quiet_and_manifest_carried_by_the_features(tmp_path: Path):
    table = pd.DataFrame(
        {"sample_id": ["a", "b"], "label": ["x", "y"], "f0": [1.0, 2], "f1": [3.0, 4]}
    )
    table.to_parquet(tmp_path / "x.parquet")
    result = run("ingest", tmp_path / "x.parquet", tmp_path / "c.zarr", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert StoredCohort(tmp_path / "c.zarr").columns == ["sample_id", "label"]


def test_ingest__says_that_rows_are_matched_by_position(files, tmp_path: Path):
    line = "rows matched by position (x.npy carries no ids)"
    assert line in run("ingest", *files, *ROLES).stdout.splitlines()
    assert "rows by position" in run("info", files[2]).stdout
    table = pd.read_csv(files[1], dtype=str).assign(f0=1.0, f1=np.arange(40.0))
    table.rename(columns={"tile": "sample_id"}).to_parquet(tmp_path / "x.parquet")
    table = table.rename(columns={"tile": "sample_id"})[["sample_id", "diagnosis"]]
    table.to_csv(tmp_path / "ids.csv", index=False)
    out = tmp_path / "ids.zarr"
    by_id = run("ingest", tmp_path / "x.parquet", tmp_path / "ids.csv", out)
    assert by_id.exit_code == 0, by_id.output
    assert "by position" not in by_id.output
    assert "rows by id" in run("info", out).stdout


def test_ingest__says_which_columns_scoring_will_miss(files):
    """The command that it names works, and so does what the error of scoring names."""
    renamed = Path(files[1]).read_text(encoding="utf-8").replace("slide_id", "slide")
    Path(files[1]).write_text(renamed.replace(",s0,\n", ",s0,A\n"), encoding="utf-8")
    done = run("ingest", *files, "--sample-id", "tile")
    assert done.exit_code == 0
    assert done.stderr.splitlines()[-1] == (
        "note: no column 'label', 'group_id' among 'tile', 'diagnosis', 'slide', 'center', "
        "'sample_id': score with --label COLUMN --group COLUMN, or ingest again with "
        "--label COLUMN --group COLUMN --overwrite"
    )
    asked = ["score", files[2], "--metrics", "CRoMa", "--m", "1", "-q", "--confounder"]
    for confounder in ("center", "label"):
        refused = run(*asked, confounder)
        assert refused.exit_code == 2
        assert "no column 'label', 'group_id' (it has" in refused.stderr
        assert "label (label=, --label) and which is the group (group=, --group)" in refused.stderr
    columns = ["--label", "diagnosis", "--group", "slide"]
    scored = run(*asked, "center", *columns)
    assert scored.exit_code == 0, scored.output
    again = run("ingest", *files, "--sample-id", "tile", *columns, "--overwrite")
    assert "note:" not in again.stderr
    quiet = run("ingest", *files, "--sample-id", "tile", "--overwrite", "-q")
    assert quiet.output == ""


def test_ingest__id_columns_by_comma_or_repeated(files):
    for i, form in enumerate(
        [["--id-columns", "slide_id, tile"], ["--id-columns", "slide_id", "--id-columns", "tile"]]
    ):
        out = f"{files[2]}{i}"
        assert run("ingest", *files[:2], out, *form, "--group", "slide_id", "-q").exit_code == 0
        assert StoredCohort(out).text("sample_id", 0, 1).tolist() == ["s0/t0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ingest", "X", "M", "C"], "--group slide_id"),
        (["ingest", "X", "M", "C", *ROLES, "--label", "nope"], "label column 'nope'"),
        (["ingest", "none.npy", "M", "C"], "there is no none.npy"),
        (["ingest", "X", "none.csv", "C"], "error: there is no none.csv"),
        (["ingest", "X", "none.parquet", "C"], "error: there is no none.parquet"),
        (["ingest", "X", "none.h5ad", "C"], "error: there is no none.h5ad"),
        (["ingest", "X"], "two or three paths"),
        (["ingest"], "Missing argument"),
        (["ingest", "X", "M", "C", "--dtype", "int8"], "int8"),
        (["info", "none.zarr"], "there is no store here"),
        (["info", "C", "--storage-option", "x"], "NAME=VALUE"),
        (["nonsense"], "No such command"),
    ],
)
def test_errors__one_line_and_exit_code_2(files, arguments: list[str], message: str):
    names = dict(zip("XMC", files, strict=True))
    result = run(*[names.get(argument, argument) for argument in arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    if result.stderr.startswith("error: "):
        assert len(result.stderr.strip().splitlines()) == 1


def test_errors__existing_store(files):
    assert run("ingest", *files, *ROLES).exit_code == 0
    result = run("ingest", *files, *ROLES)
    assert result.exit_code == 2
    assert "--overwrite" in result.stderr
    assert run("ingest", *files, *ROLES, "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [(MemoryLimitError("too large"), 3), (SupportError("nothing"), 4), (KeyboardInterrupt(), 130)],
)
def test_errors__exit_codes(monkeypatch, error: BaseException, code: int):
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr("croma_dask.cohort.store.StoredCohort.__init__", fail)
    result = run("info", "x")
    assert result.exit_code == code
    assert result.stderr.startswith("error: ")


def test_errors__a_bug_is_not_hidden(monkeypatch):
    def fail(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("croma_dask.cohort.store.StoredCohort.__init__", fail)
    with pytest.raises(ZeroDivisionError):
        run("info", "x")


def test_warnings__one_line_without_source(tmp_path: Path, files):
    frame = pd.read_csv(files[1])
    frame.loc[3, "center"] = " A"
    frame.loc[4, "center"] = "A"
    frame.to_csv(files[1], index=False)
    code = "import sys; from croma_dask.cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, "ingest", *files, *ROLES],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.startswith("warning: column 'center'")
    assert "InputWarning" not in done.stderr


def test_help__shows_examples_and_loads_nothing_heavy():
    for arguments in (["--help"], ["ingest", "--help"], ["info", "-h"]):
        result = run(*arguments)
        assert result.exit_code == 0
        assert "croma-dask " in result.stdout
    code = (
        "import sys; from croma_dask.cli import main;"
        "main(['ingest', '--help'], standalone_mode=False);"
        "bad = {'zarr', 'dask.array', 'numba', 'rich', 'h5py'} & set(sys.modules);"
        "sys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_interrupt__says_so_and_the_next_run_goes_on(tmp_path: Path, rng):
    n = 4000
    np.save(tmp_path / "x.npy", rng.standard_normal((n, 8)))
    pd.DataFrame({"sample_id": np.arange(n)}).to_csv(tmp_path / "m.csv", index=False)
    files = [str(tmp_path / name) for name in ("x.npy", "m.csv", "c.zarr")]
    code = (
        "import sys, time; import croma_dask.cohort.writer as w; flush = w.CohortWriter._flush;"
        "w.CohortWriter._flush = lambda s, r: (flush(s, r), time.sleep(0.02));"
        "from croma_dask.cli import main; main(['ingest', *sys.argv[1:], '--chunk-rows', '20'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *files], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "c.zarr/embedding/c/5").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.strip().splitlines()[-1].startswith("error: interrupted: start the same ")
    result = run("info", files[2])
    assert result.exit_code == 2
    assert "not finished" in result.stderr
    assert run("ingest", *files).exit_code == 0
    StoredCohort(files[2]).verify()
