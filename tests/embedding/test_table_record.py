"""Tables of one embedding, and what a later run takes from them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from croma_dask.embedding import table_record
from croma_dask.embedding.outcome import (
    BATCH_METRICS,
    BIO_METRICS,
    METRIC_NAMES,
    Counts,
    Outcome,
    Scores,
)
from croma_dask.embedding.table_files import Places
from croma_dask.embedding.table_record import read_sample, write_sample
from croma_dask.embedding.table_stale import drop_stale, read_all, read_sources
from croma_dask.embedding.tables import Group
from croma_dask.errors import SchemaError, StoreError

BIO: Group = "bio_conservation"
BATCH: Group = "batch_mixing"
KEYS: Any = {BIO: "of labels", BATCH: "of batches"}
GROUPS_OF: Any = {"silhouette": BIO, "ilisi": BATCH}
N = 5


def make_scores(dataset: str = "001", method: str = "M") -> Scores:
    rng = np.random.default_rng(3)
    values = [0.1 + 0.2, -0.0, 1e-310, np.nan, 1.0, *rng.random(8)]
    outcomes = {name: Outcome(v, f"n={name}") for name, v in zip(METRIC_NAMES, values, strict=True)}
    outcomes["FMI"] = Outcome.undefined("too few rows", "n_cells=1")
    return Scores(
        dataset, method, outcomes, Counts(N, 6, 3), Counts(N - 1, 6, 3, 2),
        {"silhouette": rng.random(N), "ilisi": np.array([np.nan, 1, 2, 3, 4])},
        np.array([0, 1, -1, 1, 0], np.int32), {"version": "0.5", "k": 90, "resolution": 0.3},
    )  # fmt: skip


def write(outdir: Path, scores: Scores, **kwargs: Any) -> list[Path]:
    arguments: dict[str, Any] = {
        "clustering": "leiden", "keys": KEYS, "groups_of": GROUPS_OF,
        "ids": [f"c{i}" for i in range(N)], "labels": ["T"] * N,
    }  # fmt: skip
    return write_sample(outdir, scores, **(arguments | kwargs))


def read(outdir: Path, **kwargs: Any) -> Scores | None:
    arguments: dict[str, Any] = {"clustering": "leiden", "metrics": METRIC_NAMES, "keys": KEYS}
    names = {"dataset": "001", "method": "M"}
    return read_sample(outdir, **(names | arguments | kwargs))


def bits(outcomes: dict[str, Outcome]) -> dict[str, tuple[bytes, str, str]]:
    return {
        name: (np.float64(one.value).tobytes(), one.note, one.status)
        for name, one in outcomes.items()
    }


def record_of(outdir: Path) -> Path:
    return Places(outdir, "leiden").record("M", "001") / "record.json"


def test_write_sample__writes_the_tables_and_one_hidden_folder(tmp_path: Path) -> None:
    paths = write(tmp_path, make_scores())
    assert [str(path.relative_to(tmp_path)) for path in paths] == [
        "benchmark/bio_conservation_leiden_metrics/M/001_M.csv",
        "benchmark/bio_conservation_leiden_predictions/M/001_M_leiden_labels.tsv",
        "benchmark/batch_mixing_leiden_metrics/M/001_M.csv",
    ]
    assert sorted(os.listdir(tmp_path / "benchmark")) == [
        ".croma", "batch_mixing_leiden_metrics", "bio_conservation_leiden_metrics",
        "bio_conservation_leiden_predictions",
    ]  # fmt: skip
    files = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {
        "001_M.csv", "001_M_leiden_labels.tsv", "record.json", "silhouette.npy", "ilisi.npy",
        "predictions.npy",
    }  # fmt: skip


def test_read_sample__gives_back_what_was_written(tmp_path: Path) -> None:
    scores = make_scores()
    write(tmp_path, scores)
    found = read(tmp_path)
    assert found is not None
    assert (found.dataset, found.method) == ("001", "M")
    assert list(found.outcomes) == list(METRIC_NAMES)
    assert bits(found.outcomes) == bits(scores.outcomes)
    assert (found.bio, found.batch) == (scores.bio, scores.batch)
    assert dict(found.attrs) == scores.attrs
    assert found.sample_values.keys() == scores.sample_values.keys()
    for name, array in scores.sample_values.items():
        assert found.sample_values[name].tobytes() == array.tobytes()
        assert found.sample_values[name].dtype == np.float64
    assert found.predictions is not None
    assert found.predictions.dtype == np.int32
    assert found.predictions.tolist() == [0, 1, -1, 1, 0]


def test_read_sample__finds_nothing_where_nothing_was_written(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    write(tmp_path, make_scores())
    assert read(tmp_path, clustering="kmeans") is None
    assert read(tmp_path, dataset="1") is None
    assert read(tmp_path, method="m") is None
    assert read(tmp_path, metrics=()) is None


def test_read_sample__takes_each_group_by_its_own_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, make_scores())
    with caplog.at_level(logging.INFO, "croma_dask"):
        found = read(tmp_path, keys={BIO: "of labels", BATCH: "of other batches"})
    assert caplog.messages == [
        "001 of M: batch_mixing is computed again, "
        "it was found with other parameters, versions or data"
    ]
    assert found is not None
    assert tuple(found.outcomes) == BIO_METRICS
    assert found.batch is None
    assert list(found.sample_values) == ["silhouette"]
    assert found.predictions is not None
    assert read(tmp_path, keys={BIO: "x", BATCH: "y"}) is None


def test_read_sample__gives_the_metrics_that_are_wanted(tmp_path: Path) -> None:
    write(tmp_path, make_scores())
    found = read(tmp_path, metrics=("GC", "ARI"))
    assert found is not None
    assert list(found.outcomes) == ["ARI", "GC"]
    assert found.batch is None


def test_read_sample__wants_all_metrics_of_a_group(tmp_path: Path) -> None:
    scores = make_scores()
    del scores.outcomes["ASW"]
    write(tmp_path, scores)
    found = read(tmp_path)
    assert found is not None
    assert tuple(found.outcomes) == BATCH_METRICS


def test_read_sample__takes_undefined_metrics_but_no_failed_ones(tmp_path: Path) -> None:
    scores = make_scores()
    scores.outcomes["iLISI"] = Outcome.failed(MemoryError("no room"))
    write(tmp_path, scores)
    found = read(tmp_path)
    assert found is not None
    assert tuple(found.outcomes) == BIO_METRICS
    assert found.outcomes["FMI"].status == "undefined: too few rows"


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace("0.30000000000000004", "0.9"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("damage", [edit, truncate, Path.unlink])
def test_read_sample__does_not_trust_a_table_that_was_changed(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    table, _, _ = write(tmp_path, make_scores())
    damage(table)
    found = read(tmp_path)
    assert found is not None
    assert tuple(found.outcomes) == BATCH_METRICS


def test_read_sample__wants_the_predictions_too(tmp_path: Path) -> None:
    write(tmp_path, make_scores())[1].unlink()
    found = read(tmp_path)
    assert found is not None
    assert tuple(found.outcomes) == BATCH_METRICS


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_read_sample__does_not_trust_arrays_that_were_changed(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path, make_scores())
    damage(record_of(tmp_path).with_name("ilisi.npy"))
    found = read(tmp_path)
    assert found is not None
    assert tuple(found.outcomes) == BIO_METRICS
    found = read(tmp_path, arrays=False)
    assert found is not None
    assert tuple(found.outcomes) == METRIC_NAMES
    assert found.sample_values == {}
    assert found.predictions is None


def test_read_sample__wants_arrays_that_were_never_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, make_scores(), arrays=False)
    with caplog.at_level(logging.INFO, "croma_dask"):
        assert read(tmp_path) is None
    assert all("its per-sample values were not kept" in text for text in caplog.messages)
    assert read(tmp_path, arrays=False) is not None
    # A run that had no arrays is whole without any.
    write(tmp_path, replace(make_scores(), sample_values={}, predictions=None))
    assert read(tmp_path) is not None


def test_read_sample__takes_arrays_of_no_group_for_every_group(tmp_path: Path) -> None:
    write(tmp_path, make_scores(), groups_of={})
    found = read(tmp_path, metrics=BIO_METRICS)
    assert found is not None
    assert sorted(found.sample_values) == ["ilisi", "silhouette"]
    record_of(tmp_path).with_name("ilisi.npy").unlink()
    assert read(tmp_path, metrics=BIO_METRICS) is None


def set_to(*keys: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        for key in keys[:-1]:
            record = record[key]
        record[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_to("groups", value=None),
        set_to("groups", value=[1]),
        set_to("groups", BIO, value=None),
        set_to("groups", BIO, value={}),
        set_to("groups", BIO, "metrics", value=None),
        set_to("groups", BIO, "counts", value={"n": 1}),
        set_to("groups", BIO, "outcomes", value=list(BIO_METRICS)),
        set_to("groups", BIO, "outcomes", "GC", "value", value="high"),
        set_to("groups", BIO, "outcomes", "GC", "value", value=None),
        set_to("groups", BIO, "arrays", value={"../../../x": "0" * 64}),
        set_to("groups", BIO, "arrays", value=7),
        set_to("groups", BIO, "attrs", value=7),
    ],
)
def test_read_sample__survives_a_damaged_record(change: Any, tmp_path: Path) -> None:
    write(tmp_path, make_scores())
    path = record_of(tmp_path)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    found = read(tmp_path)
    assert found is None or tuple(found.outcomes) == BATCH_METRICS
    # And what is written then counts again.
    write(tmp_path, make_scores())
    found = read(tmp_path)
    assert found is not None
    assert tuple(found.outcomes) == METRIC_NAMES


@pytest.mark.parametrize(
    ("value", "told"), [(2, "newer release"), (0, "damaged"), ("1", "damaged")]
)
def test_read_sample__of_another_format_is_refused(value: Any, told: str, tmp_path: Path) -> None:
    write(tmp_path, make_scores())
    path = record_of(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": value}))
    with pytest.raises(StoreError, match=told):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"null", b"\xff\xfe", b"{}"])
def test_read_sample__survives_a_record_that_is_none(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, make_scores())
    record_of(tmp_path).write_bytes(content)
    assert read(tmp_path) is None


def test_write_sample__keeps_the_group_that_another_run_has_written(tmp_path: Path) -> None:
    scores = make_scores()
    bio = {name: scores.outcomes[name] for name in BIO_METRICS}
    batch = {name: scores.outcomes[name] for name in BATCH_METRICS}
    silhouette, ilisi = ({name: scores.sample_values[name]} for name in ("silhouette", "ilisi"))
    first = replace(scores, outcomes=bio, batch=None, sample_values=silhouette)
    second = replace(scores, outcomes=batch, bio=None, sample_values=ilisi, predictions=None)
    write(tmp_path, first)
    write(tmp_path, second)
    found = read(tmp_path)
    assert found is not None
    assert bits(found.outcomes) == bits(scores.outcomes)
    assert sorted(found.sample_values) == ["ilisi", "silhouette"]
    assert found.predictions is not None


def part(scores: Scores, *names: str, **more: Any) -> Scores:
    """Scores as of a run that was asked for these metrics of labels only."""
    outcomes = {name: scores.outcomes[name] for name in names}
    nothing: dict[str, Any] = {"batch": None, "sample_values": {}, "predictions": None}
    return replace(scores, outcomes=outcomes, **(nothing | more))


def test_write_sample__adds_to_what_was_found_under_the_same_key(tmp_path: Path) -> None:
    scores = make_scores()
    silhouette = {"silhouette": scores.sample_values["silhouette"]}
    write(tmp_path, part(scores, "ASW", sample_values=silhouette))
    write(tmp_path, part(scores, "NMI", predictions=scores.predictions))
    (table,) = write(tmp_path, part(scores, "FMI", "GC"))
    assert [line.split(",")[2] for line in table.read_text().splitlines()[1:]] == [
        "NMI", "FMI", "ASW", "GC",
    ]  # fmt: skip
    found = read(tmp_path, metrics=("NMI", "FMI", "ASW", "GC"))
    assert found is not None
    assert bits(found.outcomes) == bits(
        {n: scores.outcomes[n] for n in ("NMI", "FMI", "ASW", "GC")}
    )
    assert list(found.sample_values) == ["silhouette"]
    assert found.predictions is not None
    # What is found anew counts.
    write(tmp_path, replace(part(scores, "GC"), outcomes={"GC": Outcome(0.25)}))
    found = read(tmp_path, metrics=("ASW", "GC"))
    assert found is not None
    assert found.outcomes["GC"].value == 0.25


def test_write_sample__leaves_nothing_that_was_found_under_another_key(tmp_path: Path) -> None:
    write(tmp_path, make_scores())
    predictions = Places(tmp_path, "leiden").predictions("M", "001")
    assert predictions.exists()
    write(tmp_path, part(make_scores(), "GC"), keys={**KEYS, BIO: "of others"})
    assert not predictions.exists()
    assert {p.name for p in record_of(tmp_path).parent.iterdir()} == {"record.json", "ilisi.npy"}
    found = read(tmp_path, metrics=("GC", *BATCH_METRICS), keys={**KEYS, BIO: "of others"})
    assert found is not None
    assert tuple(found.outcomes) == ("GC", *BATCH_METRICS)
    assert read(tmp_path, metrics=("ASW",), keys={**KEYS, BIO: "of others"}) is None


@pytest.mark.parametrize("name", ["001_M.csv", "001_M_leiden_labels.tsv", "silhouette.npy"])
def test_write_sample__adds_to_nothing_that_was_changed(name: str, tmp_path: Path) -> None:
    write(tmp_path, make_scores())
    (path,) = [p for p in tmp_path.rglob(name) if "batch" not in str(p)]
    truncate(path)
    write(tmp_path, part(make_scores(), "GC"))
    found = read(tmp_path, metrics=("GC",))
    assert found is not None
    assert not list(tmp_path.rglob("*_labels.tsv"))
    assert read(tmp_path, metrics=("ASW",)) is None


def test_read_all__gives_all_that_is_right_today(tmp_path: Path) -> None:
    scores = make_scores()
    scores.outcomes["GC"] = Outcome.failed(ValueError("no"))
    write(tmp_path, scores)
    names: Any = {"dataset": "001", "method": "M", "clustering": "leiden"}
    found = read_all(tmp_path, **names, keys=KEYS)
    assert bits(found.outcomes) == bits(scores.outcomes)
    assert (found.bio, found.batch) == (scores.bio, scores.batch)
    found = read_all(tmp_path, **names, keys={**KEYS, BIO: "of others"})
    assert (tuple(found.outcomes), found.bio) == (BATCH_METRICS, None)
    Places(tmp_path, "leiden").metrics(BATCH, "M", "001").unlink()
    assert tuple(read_all(tmp_path, **names, keys=KEYS).outcomes) == BIO_METRICS
    assert read_all(tmp_path / "nowhere", **names, keys=KEYS).outcomes == {}


def test_drop_stale__deletes_what_is_of_another_key_and_nothing_else(tmp_path: Path) -> None:
    names: Any = {"dataset": "001", "method": "M", "clustering": "leiden"}
    paths = write(tmp_path, make_scores())
    write(tmp_path, make_scores("002"))
    others = {p: p.read_bytes() for p in tmp_path.rglob("*002*") if p.is_file()}
    assert drop_stale(tmp_path, **names, keys=KEYS, groups=[BIO, BATCH]) == []
    assert drop_stale(tmp_path, **names, keys={BIO: "x", BATCH: "y"}, groups=[]) == []
    assert all(path.exists() for path in paths)
    combined = [Places(tmp_path, "leiden").combined(g, "M", "wide") for g in (BIO, BATCH)]
    for path in combined:
        path.write_text("sample_id,method")
    assert drop_stale(tmp_path, **names, keys={BIO: "x", BATCH: KEYS[BATCH]}, groups=[BIO]) == [BIO]
    assert [path.exists() for path in paths] == [False, False, True]
    assert [path.exists() for path in combined] == [False, True]
    assert {p.name for p in record_of(tmp_path).parent.iterdir()} == {"record.json", "ilisi.npy"}
    assert {p: p.read_bytes() for p in others} == others
    found = read(tmp_path)
    assert found is not None
    assert tuple(found.outcomes) == BATCH_METRICS
    # Tables without a record are somebody else's.
    record_of(tmp_path).unlink()
    assert drop_stale(tmp_path, **names, keys={BIO: "x", BATCH: "y"}, groups=[BATCH]) == []
    assert paths[2].exists()


@pytest.mark.parametrize("damage", [None, 7, {}, {"sources": 3}])
def test_read_sources__survives_a_damaged_record(damage: Any, tmp_path: Path) -> None:
    names: Any = {"dataset": "001", "method": "M", "clustering": "leiden"}
    write(tmp_path, make_scores(), sources={BIO: {"rows": "abc", "batch": ["x", None]}})
    assert read_sources(tmp_path, **names) == {
        BIO: {"rows": "abc", "batch": ["x", None]}, BATCH: {},
    }  # fmt: skip
    record = json.loads(record_of(tmp_path).read_text())
    record["groups"][BIO] = damage
    record_of(tmp_path).write_text(json.dumps(record))
    assert read_sources(tmp_path, **names) == {BIO: {}, BATCH: {}}
    assert drop_stale(tmp_path, **names, keys=KEYS, groups=[BIO, BATCH]) == [BIO]


def test_write_sample__that_is_killed_between_table_and_record_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, make_scores())
    changed = make_scores()
    changed.outcomes["ASW"] = Outcome(0.125)

    def killed(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(table_record, "write_sections", killed)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, changed)
    found = read(tmp_path)
    assert found is not None
    assert tuple(found.outcomes) == BATCH_METRICS
    assert not [p for p in tmp_path.rglob(".*") if p.name != ".croma"]


def test_write_sample__writes_the_same_bytes_again(tmp_path: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    write(tmp_path, make_scores())
    first = content()
    found = read(tmp_path)
    assert found is not None
    write(tmp_path, found)
    assert content() == first


def test_write_sample__keeps_methods_and_samples_apart(tmp_path: Path) -> None:
    # Names that make the same file name, in folders of their own.
    one, other = make_scores("a_b", "c"), make_scores("a", "b_c")
    other.outcomes["GC"] = Outcome(0.75)
    write(tmp_path, one)
    write(tmp_path, other)
    for scores in (one, other):
        found = read(tmp_path, dataset=scores.dataset, method=scores.method)
        assert found is not None
        assert bits(found.outcomes) == bits(scores.outcomes)


@pytest.mark.parametrize("bad", ["../../x", "a/b", "..", ".", "", "a\nb", "a\x00b"])
def test_write_sample__never_leaves_the_folder(bad: str, tmp_path: Path) -> None:
    outdir = tmp_path / "deep" / "er" / "out"
    for scores in (make_scores(dataset=bad), make_scores(method=bad)):
        with pytest.raises(SchemaError, match="cannot be part of a file name"):
            write(outdir, scores)
        with pytest.raises(SchemaError, match="cannot be part of a file name"):
            read(outdir, dataset=scores.dataset, method=scores.method)
    with pytest.raises(SchemaError, match="cannot be part of a file name"):
        write(outdir, replace(make_scores(), sample_values={bad: np.zeros(N)}))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_write_sample__needs_ids_and_labels_of_predictions(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ids and labels of their rows"):
        write(tmp_path, make_scores(), ids=None)
    assert not list(tmp_path.iterdir())
    write(tmp_path, replace(make_scores(), predictions=None), ids=None, labels=None)
    assert read(tmp_path) is not None


def test_write_sample__takes_attributes_that_numpy_has_made(tmp_path: Path) -> None:
    attrs: Any = {"k": np.int64(3), "x": np.float32(0.5), "flag": np.bool_(True)}
    write(tmp_path, replace(make_scores(), attrs=attrs))
    found = read(tmp_path)
    assert found is not None
    assert dict(found.attrs) == {"k": 3, "x": 0.5, "flag": True}
    with pytest.raises(TypeError, match="object cannot be kept in a record"):
        write(tmp_path, replace(make_scores(), attrs={"k": object()}))  # type: ignore[dict-item]


def test_flipped_bit__of_a_record_is_no_value(tmp_path: Path, rng: np.random.Generator) -> None:
    write(tmp_path, make_scores())
    path = record_of(tmp_path)
    raw = path.read_bytes()
    expected = read(tmp_path)
    assert expected is not None
    whole = 0
    for bit in rng.integers(0, 8 * len(raw), 400).tolist():
        hurt = bytearray(raw)
        hurt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(hurt)
        try:
            found = read(tmp_path)
        except StoreError:  # a version that is none
            continue
        if found is None:
            continue
        whole += tuple(found.outcomes) == METRIC_NAMES
        kept = {name: expected.outcomes[name] for name in found.outcomes}
        assert bits(found.outcomes) == bits(kept), bit
        assert set(found.attrs.items()) <= set(expected.attrs.items()), bit
    assert whole < 40
