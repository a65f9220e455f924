"""Scores as tables, and the files that they are kept in.

What is said here of scfoundry's tables was captured from runs of its scorer (0.2.1) on five files
of 60 cells, 3 labels and 2 batches (one of them: 1 batch), with both clusterings.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.embedding.outcome import (
    BATCH_METRICS,
    BIO_METRICS,
    METRIC_NAMES,
    Counts,
    Outcome,
    Scores,
)
from croma_dask.embedding.table_files import Places, write_combined, write_predictions
from croma_dask.embedding.tables import (
    GROUPS,
    LONG_COLUMNS,
    Group,
    frame_lines,
    long_table,
    table_lines,
    wide_table,
)
from croma_dask.errors import SchemaError
from croma_dask.outward import unguarded
from croma_dask.whole_files import write_lines, write_whole

BIO: Group = "bio_conservation"
BATCH: Group = "batch_mixing"

# The file bio_conservation_leiden_metrics/M-one/001_M-one.csv of scfoundry's scorer, as it is.
BIO_CSV = """\
sample_id,method,metric,value,note,metric_group,n_cells,n_dims,n_labels,n_batches
001,M-one,NMI,1.0,{note},bio_conservation,60,6,3,
001,M-one,HOM,1.0,{note},bio_conservation,60,6,3,
001,M-one,COM,1.0,{note},bio_conservation,60,6,3,
001,M-one,FMI,1.0,{note},bio_conservation,60,6,3,
001,M-one,ARI,1.0,{note},bio_conservation,60,6,3,
001,M-one,ASW,0.43108053376347094,,bio_conservation,60,6,3,
001,M-one,cLISI,0.7522966861724854,,bio_conservation,60,6,3,
001,M-one,Acc@kNN,1.0,,bio_conservation,60,6,3,
001,M-one,GC,1.0,,bio_conservation,60,6,3,
"""
LEIDEN = (
    "clustering=leiden;selection=match_n_labels;resolution=0.2;n_clusters=3;target_n_labels=3;"
    "scan_n=30"
)

# Its file batch_mixing_leiden_metrics/M-one/one-batch_M-one.csv.
BATCH_CSV = """\
sample_id,method,metric,value,note,metric_group,n_cells,n_dims,n_labels,n_batches
one-batch,M-one,kBET,,insufficient_batches,batch_mixing,60,6,3,1
one-batch,M-one,BRAS,,insufficient_batches;bras_definition=cosine_mean_other,batch_mixing,60,6,3,1
one-batch,M-one,iLISI,,insufficient_batches,batch_mixing,60,6,3,1
one-batch,M-one,CiLISI,,insufficient_batches,batch_mixing,60,6,3,1
"""

# First lines of its wide tables.
WIDE_HEADERS = {
    BIO: "sample_id,method,ARI,ASW,Acc@kNN,COM,FMI,GC,HOM,NMI,cLISI",
    BATCH: "sample_id,method,BRAS,CiLISI,iLISI,kBET",
}

# Its files of method M-one and sample a, below the folder that becomes `benchmark`.
FILES = {
    "leiden": [
        "M-one_batch_mixing_leiden_metrics_long.csv",
        "M-one_batch_mixing_leiden_metrics_wide.csv",
        "M-one_bio_conservation_leiden_metrics_long.csv",
        "M-one_bio_conservation_leiden_metrics_wide.csv",
        "batch_mixing_leiden_metrics/M-one/a_M-one.csv",
        "bio_conservation_leiden_metrics/M-one/a_M-one.csv",
        "bio_conservation_leiden_predictions/M-one/a_M-one_leiden_labels.tsv",
    ],
    "kmeans": [
        "M-one_batch_mixing_metrics_long.csv",
        "M-one_batch_mixing_metrics_wide.csv",
        "M-one_bio_conservation_metrics_long.csv",
        "M-one_bio_conservation_metrics_wide.csv",
        "batch_mixing_metrics/M-one/a_M-one.csv",
        "bio_conservation_metrics/M-one/a_M-one.csv",
        "bio_conservation_predictions/M-one/a_M-one_kmeans_labels.tsv",
    ],
}


def make_scores(dataset: str = "a", method: str = "M-one", value: float = 0.5) -> Scores:
    return Scores(
        dataset,
        method,
        {name: Outcome(value) for name in METRIC_NAMES},
        Counts(60, 6, 3),
        Counts(59, 6, 3, 2),
    )


def test_long_table__is_what_scfoundry_writes_of_labels() -> None:
    values = {"ASW": 0.43108053376347094, "cLISI": 0.7522966861724854}
    # Asked for in another order.
    outcomes = {
        name: Outcome(values.get(name, 1.0), LEIDEN if name in BIO_METRICS[:5] else "")
        for name in reversed(BIO_METRICS)
    }
    frame = long_table(Scores("001", "M-one", outcomes, Counts(60, 6, 3)), BIO)
    assert "".join(frame_lines(frame)) == BIO_CSV.format(note=LEIDEN)


def test_long_table__is_what_scfoundry_writes_of_batches() -> None:
    bras = "insufficient_batches;bras_definition=cosine_mean_other"
    outcomes = {
        name: Outcome.undefined("one batch", bras if name == "BRAS" else "insufficient_batches")
        for name in BATCH_METRICS
    }
    frame = long_table(Scores("one-batch", "M-one", outcomes, None, Counts(60, 6, 3, 1)), BATCH)
    assert "".join(frame_lines(frame)) == BATCH_CSV


def test_long_table__has_columns_of_their_types() -> None:
    scores = make_scores()
    bio, batch = long_table(scores, BIO), long_table(scores, BATCH)
    for frame in (bio, batch):
        assert tuple(frame.columns) == LONG_COLUMNS
        assert frame["value"].dtype == np.float64
        assert frame["n_cells"].dtype == np.int64
        assert frame["note"].tolist() == [""] * len(frame)
    assert bio["metric"].tolist() == list(BIO_METRICS)
    assert batch["metric"].tolist() == list(BATCH_METRICS)
    assert bio["n_batches"].isna().all()
    assert batch["n_batches"].tolist() == [2] * 4
    assert batch["n_cells"].tolist() == [59] * 4


def test_long_table__has_the_metrics_that_were_asked_for() -> None:
    scores = Scores("a", "M", {"GC": Outcome(0.5), "ARI": Outcome(0.25)}, Counts(9, 2, 2))
    assert long_table(scores, BIO)["metric"].tolist() == ["ARI", "GC"]
    empty = long_table(scores, BATCH)
    assert empty.shape == (0, len(LONG_COLUMNS))
    assert "".join(frame_lines(empty)) == ",".join(LONG_COLUMNS) + "\n"


def test_long_table__needs_the_rows_that_scores_are_of() -> None:
    with pytest.raises(ValueError, match="without the rows"):
        long_table(replace(make_scores(), bio=None), BIO)
    with pytest.raises(ValueError, match="without their number"):
        long_table(replace(make_scores(), batch=Counts(1, 1, 1)), BATCH)


def test_long_table__keeps_a_message_of_several_lines_on_one() -> None:
    failed = Outcome.failed(ValueError("first; second\nthird\x1b[31m"))
    scores = Scores("a", "M", {"GC": failed}, Counts(9, 2, 2))
    (note,) = long_table(scores, BIO)["note"]
    assert note == "metric_failed=ValueError:first, second third [31m"


@pytest.mark.parametrize("group", GROUPS)
def test_wide_table__has_every_row_and_column(group: Any) -> None:
    nothing = make_scores("nothing", value=np.nan)
    some = make_scores("some", value=np.nan)
    some.outcomes["GC"] = some.outcomes["kBET"] = Outcome(0.1 + 0.2)
    few = Scores("few", "M-one", {"GC": Outcome(1.0), "kBET": Outcome(0.0)}, some.bio, some.batch)
    wide = wide_table([long_table(one, group) for one in (some, nothing, few)], group)
    assert ",".join(wide.columns) == WIDE_HEADERS[group]
    # scfoundry's own table would lack the row of "nothing", and all columns but one.
    assert wide["sample_id"].tolist() == ["few", "nothing", "some"]
    metric = "GC" if group == BIO else "kBET"
    assert wide[metric].tolist()[2] == 0.1 + 0.2
    assert wide.drop(columns=[metric, "sample_id", "method"]).isna().all(axis=None)
    header, *lines = frame_lines(wide)
    assert lines[1] == "nothing,M-one" + "," * len(GROUPS[group]) + "\n"
    assert header.rstrip() == WIDE_HEADERS[group]


def test_wide_table__of_nothing_has_all_columns() -> None:
    assert ",".join(wide_table([], BIO).columns) == WIDE_HEADERS[BIO]


def test_wide_table__sorts_by_code_point() -> None:
    names = ["b", "a", "a-b", "B", "10", "9", "001", "ä"]
    frames = [long_table(make_scores(name, method), BIO) for name in names for method in "zA"]
    wide = wide_table(frames, BIO)
    assert wide["sample_id"].tolist()[::2] == ["001", "10", "9", "B", "a", "a-b", "b", "ä"]
    assert wide["method"].tolist() == ["A", "z"] * 8
    # An id that somebody has read as a number is text again.
    frames[0]["sample_id"] = 7
    assert "7" in wide_table(frames, BIO)["sample_id"].tolist()


def test_wide_table__refuses_what_does_not_belong() -> None:
    frame = long_table(make_scores(), BIO)
    with pytest.raises(SchemaError, match="'NMI' is no metric of batch_mixing"):
        wide_table([frame], BATCH)
    with pytest.raises(SchemaError, match="NMI of sample 'a' of 'M-one' is there twice"):
        wide_table([frame, frame], BIO)


@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_table_lines__floats_read_back_as_the_same_bits(values: list[float]) -> None:
    text = "".join(table_lines(["a", "value"], [["x", np.float64(value)] for value in values]))
    # As text: pandas before 3 reads some floats one bit off, unless told float_precision.
    cells = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)["value"]
    found = np.array([float(cell or "nan") for cell in cells])
    expected = np.array(values)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    good = ~np.isnan(expected)
    assert found[good].tobytes() == expected[good].tobytes()


awkward = st.text(st.sampled_from(['"', ",", "\t", "\n", "\r", " ", "a", "=", "é", "'"]))


@pytest.mark.parametrize("separator", [",", "\t"])
@given(rows=st.lists(st.tuples(awkward, awkward), min_size=1, max_size=8))
def test_table_lines__texts_read_back_as_they_were(
    separator: str, rows: list[tuple[str, str]]
) -> None:
    text = "".join(table_lines(["id", "a", "b"], [["x", *row] for row in rows], separator))
    found = pd.read_csv(io.StringIO(text, newline=""), sep=separator, dtype=str,
                        keep_default_na=False)  # fmt: skip
    # Those that a spreadsheet would take for formulas have an apostrophe before them.
    read = zip(found["a"].map(unguarded), found["b"].map(unguarded), strict=True)
    assert list(read) == rows


def test_table_lines__are_those_of_pandas() -> None:
    frame = pd.DataFrame(
        {
            "id": ["001", 'say "a"', "b, c", "=1+1", " d", "line\nend", "NA", "é"],
            "value": [0.1 + 0.2, 1.0, -0.0, 1e-310, 1e22, np.nan, 123456789.0, np.inf],
            "n": range(8),
        }
    )
    # pandas writes infinity as inf, and so does Python's repr.
    expected = frame.to_csv(index=False, lineterminator="\n").replace("=1+1", "'=1+1")
    assert "".join(frame_lines(frame)) == expected


@pytest.mark.parametrize("clustering", ["leiden", "kmeans"])
def test_places__are_those_of_scfoundry(clustering: Any, tmp_path: Path) -> None:
    places = Places(tmp_path, clustering)
    found = [
        *(places.combined(g, "M-one", shape) for g in GROUPS for shape in ("long", "wide")),
        *(places.metrics(g, "M-one", "a") for g in GROUPS),
        places.predictions("M-one", "a"),
    ]
    below = sorted(str(path.relative_to(tmp_path / "benchmark")) for path in found)
    assert below == FILES[clustering]


BAD_NAMES = ["../../x", "a/b", "/etc/x", "..", ".", "", "a\nb", "a\x00b", "a\x1b[2J"]


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_places__never_leave_the_folder(bad: str, tmp_path: Path) -> None:
    places = Places(tmp_path, "leiden")
    calls: list[Callable[[], Path]] = [
        lambda: places.metrics(BIO, bad, "a"),
        lambda: places.metrics(BIO, "M", bad),
        lambda: places.predictions(bad, "a"),
        lambda: places.predictions("M", bad),
        lambda: places.combined(BIO, bad, "wide"),
        lambda: places.record(bad, "a"),
        lambda: places.record("M", bad),
    ]
    for call in calls:
        with pytest.raises(SchemaError, match="cannot be part of a file name"):
            call()


def test_places__fit_what_file_systems_allow() -> None:
    places = Places("out", "leiden")
    method, sample = "m" * 199, "s"
    paths = (
        *(places.combined(g, method, "long") for g in GROUPS),
        *(places.metrics(g, method, sample) for g in GROUPS),
        places.predictions(method, sample),
        places.record(method, sample),
    )
    assert max(len(path.name) for path in paths) <= 255


def test_write_whole__leaves_the_old_file_where_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.csv"
    write_lines(path, ["old\n"])

    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, fail)
    assert path.read_text() == "old\n"
    assert os.listdir(path.parent) == ["a.csv"]


def test_write_whole__gives_the_file_the_usual_rights(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.csv", ["x\n"])
    (tmp_path / "b.csv").touch()
    a, b = ((tmp_path / name).stat().st_mode for name in ("a.csv", "b.csv"))
    assert stat.S_IMODE(a) == stat.S_IMODE(b)


def with_clusters(clusters: Any, dataset: str = "liver") -> Scores:
    return replace(make_scores(dataset), predictions=np.array(clusters, np.int32))


def test_write_predictions__is_what_scfoundry_writes(tmp_path: Path) -> None:
    # Lines of its file liver_M-one_leiden_labels.tsv; cell c005 had no label and is absent.
    path = tmp_path / "p.tsv"
    write_predictions(
        path, with_clusters([0, -1, 0, 1]), clustering="leiden",
        ids=["c004", "c005", "c006", "c020"], labels=["T cell", "", "T cell", "B, cell"],
    )  # fmt: skip
    assert path.read_bytes() == (
        b"sample_id\tmethod\tbarcode\ttrue_label\tleiden_label\n"
        b"liver\tM-one\tc004\tT cell\t0\n"
        b"liver\tM-one\tc006\tT cell\t0\n"
        b"liver\tM-one\tc020\tB, cell\t1\n"
    )


def test_write_predictions__keeps_spreadsheets_from_running_texts(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    ids = ["=1+1", "+a", "-b", "@c", "\td", 'e"f', "g\rh", "007", "nan"]
    write_predictions(path, with_clusters([0] * 9), clustering="kmeans", ids=ids, labels=ids)
    found = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    for column in ("barcode", "true_label"):
        assert found[column].tolist() == [f"'{text}" for text in ids[:5]] + ids[5:]
        assert found[column].map(unguarded).tolist() == ids
    assert found["kmeans_label"].tolist() == ["0"] * 9


def test_write_predictions__reads_long_names_a_few_at_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def ids(lo: int, hi: int) -> list[str]:
        asked.append(hi - lo)
        return [f"c{i}".ljust(10_000, "x") for i in range(lo, hi)]

    write_predictions(
        tmp_path / "p.tsv", with_clusters([0] * 6_000), clustering="kmeans", ids=ids, labels=ids
    )
    assert sum(asked) == 2 * 6_000
    assert max(asked[2:]) < 1_000


def test_write_predictions__reads_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croma_dask.embedding.table_files._FIRST", 65_536)
    n = 150_000
    clusters = np.arange(n) % 3 - 1
    clusters[65_536:131_072] = -1
    asked: list[tuple[int, int]] = []

    def ids(lo: int, hi: int) -> list[str]:
        asked.append((lo, hi))
        return [f"c{i}" for i in range(lo, hi)]

    def labels(lo: int, hi: int) -> np.ndarray:
        return np.full(hi - lo, "T", object)

    path = tmp_path / "p.tsv"
    digest = write_predictions(
        path, with_clusters(clusters), clustering="leiden", ids=ids, labels=labels
    )
    # Nothing is read of a block without any row.
    assert asked == [(0, 65_536), (131_072, 150_000)]
    found = pd.read_csv(path, sep="\t", dtype=str)
    kept = np.flatnonzero(clusters >= 0)
    assert found["barcode"].tolist() == [f"c{i}" for i in kept]
    assert found["leiden_label"].tolist() == clusters[kept].astype(str).tolist()
    whole = write_predictions(
        path, with_clusters(clusters), clustering="leiden", ids=ids(0, n), labels=["T"] * n
    )
    assert whole == digest


def test_write_predictions__takes_columns_by_position(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    ids: Any = pd.Series(["x", "y", "z"], index=[2, 0, 1])
    labels: Any = pd.Categorical(["T", "B", "T"])
    write_predictions(path, with_clusters([5, 6, 7]), clustering="leiden", ids=ids, labels=labels)
    found = pd.read_csv(path, sep="\t", dtype=str)
    assert found["barcode"].tolist() == ["x", "y", "z"]
    assert found["true_label"].tolist() == ["T", "B", "T"]


def test_write_predictions__needs_a_text_for_every_row(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    scores = with_clusters([0, 1, 1])
    with pytest.raises(ValueError, match="2 ids for 3 rows"):
        write_predictions(path, scores, clustering="leiden", ids=["a", "b"], labels=["T"] * 3)
    with pytest.raises(ValueError, match="1 labels for 3 rows"):
        write_predictions(
            path, scores, clustering="leiden", ids=list("abc"), labels=lambda lo, hi: ["T"]
        )
    with pytest.raises(ValueError, match="was not clustered"):
        write_predictions(path, make_scores(), clustering="leiden", ids=[], labels=[])
    assert not list(tmp_path.iterdir())


def test_write_combined__writes_both_shapes_of_both_groups(tmp_path: Path) -> None:
    # In the order of their files, which is not that of their names.
    scores = [make_scores(name, value=value) for name, value in (("a-b", 0.25), ("a", np.nan))]
    paths = write_combined(tmp_path, "M-one", scores, clustering="leiden")
    assert sorted(path.name for path in paths) == FILES["leiden"][:4]
    assert sorted(os.listdir(tmp_path / "benchmark")) == FILES["leiden"][:4]
    long, wide = (
        (tmp_path / "benchmark" / f"M-one_batch_mixing_leiden_metrics_{shape}.csv").read_text()
        for shape in ("long", "wide")
    )
    assert long.splitlines() == [
        ",".join(LONG_COLUMNS),
        *(f"a-b,M-one,{name},0.25,,batch_mixing,59,6,3,2" for name in BATCH_METRICS),
        *(f"a,M-one,{name},,,batch_mixing,59,6,3,2" for name in BATCH_METRICS),
    ]
    assert wide.splitlines() == [
        WIDE_HEADERS[BATCH],
        "a,M-one,,,,",
        "a-b,M-one,0.25,0.25,0.25,0.25",
    ]


def test_write_combined__writes_no_table_of_a_group_that_was_not_asked_for(tmp_path: Path) -> None:
    bio = replace(make_scores("001"), outcomes={"GC": Outcome(1.0)}, batch=None)
    paths = write_combined(tmp_path, "M-one", [bio], clustering="kmeans")
    assert [path.name for path in paths] == FILES["kmeans"][2:4]
    # One sample with batches among others without: its table has that one.
    both = make_scores("b")
    paths = write_combined(tmp_path, "M-one", [bio, both], clustering="kmeans")
    assert sorted(path.name for path in paths) == FILES["kmeans"][:4]
    batch, bio_wide = (
        pd.read_csv(tmp_path / "benchmark" / FILES["kmeans"][at], dtype={"sample_id": str})
        for at in (1, 3)
    )
    assert batch["sample_id"].tolist() == ["b"]
    assert bio_wide["sample_id"].tolist() == ["001", "b"]
    assert bio_wide["GC"].tolist() == [1.0, 0.5]
    assert np.isnan(bio_wide["ARI"][0])


def test_write_combined__refuses_mixed_or_repeated_scores(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="as those of M-one"):
        write_combined(tmp_path, "M-one", [make_scores(method="x")], clustering="leiden")
    with pytest.raises(SchemaError, match="method 'M-one' has sample 'a' more than once"):
        write_combined(tmp_path, "M-one", [make_scores(), make_scores()], clustering="leiden")
    assert not list(tmp_path.iterdir())
