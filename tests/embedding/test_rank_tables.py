"""Tables that others wrote: what is read from them, what is absent, and what is refused."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, METRIC_NAMES
from croma_dask.embedding.rank_tables import ScoreTable, read_scores
from croma_dask.errors import InputWarning, SchemaError

BIO = "sample_id,method,ARI,ASW\n001,PCA,0.5,-0.1\n001,scVI,0.25,\n1,PCA,1e-3,.5\n"
BATCH = "sample_id,method,BRAS,kBET\n001,PCA,0.75,0\n1,PCA,,1\n"
METRICS = ["ARI", "ASW", "kBET", "BRAS", "CiLISI"]
NAN = np.nan
EXPECTED = [[[0.5, -0.1, 0, 0.75, NAN], [0.25, NAN, NAN, NAN, NAN]],
            [[1e-3, 0.5, 1, NAN, NAN], [NAN] * 5]]  # fmt: skip


def written(folder: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name}.csv")
        paths[-1].write_text(text)
    return paths


def check(found: ScoreTable) -> None:
    assert (found.datasets, found.methods) == (["001", "1"], ["PCA", "scVI"])
    assert found.metrics == METRICS
    np.testing.assert_array_equal(found.value, EXPECTED)


def long_frame() -> pd.DataFrame:
    rows = [
        (t, m, k, EXPECTED[i][j][at])
        for i, t in enumerate(["001", "1"])
        for j, m in enumerate(["PCA", "scVI"])
        for at, k in enumerate(METRICS)
        if (t, m) != ("1", "scVI")
    ]
    return pd.DataFrame(rows, columns=["sample_id", "method", "metric", "value"])


def test_read_scores__joins_wide_tables(tmp_path: Path) -> None:
    paths = written(tmp_path, bio=BIO, batch=BATCH)
    check(read_scores(paths, METRICS))
    check(read_scores(paths[::-1], METRICS))
    check(read_scores([str(path) for path in paths], METRICS))
    check(read_scores([pd.read_csv(path, dtype={"sample_id": str}) for path in paths], METRICS))


def test_read_scores__stacks_methods_whose_columns_differ(tmp_path: Path) -> None:
    pca = "sample_id,method,ARI,ASW\n001,PCA,0.5,-0.1\n1,PCA,0.001,0.5\n"
    scvi = "sample_id,method,ARI\n001,scVI,0.25\n"  # ASW was NaN throughout
    check(read_scores(written(tmp_path, b=scvi, a=pca, batch=BATCH), METRICS))


def test_read_scores__of_long_tables(tmp_path: Path) -> None:
    frame = long_frame()
    check(read_scores(frame, METRICS))
    frame.assign(
        note="a;b", metric_group="x", n_cells=3, n_dims=2, n_labels=2, n_batches=""
    ).to_csv(tmp_path / "long.csv", index=False)
    check(read_scores(tmp_path / "long.csv", METRICS))
    bio = frame["metric"].isin(BIO_METRICS)
    check(read_scores([frame[~bio], frame[bio]], METRICS))
    wide = frame[bio].pivot(index=["sample_id", "method"], columns="metric", values="value")
    check(read_scores([wide, frame[~bio]], METRICS))
    check(read_scores([wide.reset_index(), frame[~bio].rename(columns={"sample_id": "dataset"})],
                      METRICS))  # fmt: skip


def dataset() -> xr.Dataset:
    value = np.full((2, 2, len(METRIC_NAMES)), NAN)
    at = [METRIC_NAMES.index(metric) for metric in METRICS]
    value[:, :, at] = EXPECTED
    coords = {
        "dataset": np.array(["001", "1"], object), "method": np.array(["PCA", "scVI"], object),
        "metric": np.array(METRIC_NAMES, object),
    }  # fmt: skip
    return xr.Dataset({"value": (tuple(coords), value)}, coords)


def test_read_scores__of_a_dataset(tmp_path: Path) -> None:
    whole = dataset()
    check(read_scores(whole, METRICS))
    check(read_scores(whole["value"].transpose("metric", "method", "dataset"), METRICS))
    check(read_scores([whole.sel(dataset="001"), whole.sel(dataset=["1"])], METRICS))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently")
        whole.to_zarr(tmp_path / "b.zarr")
    whole.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    check(read_scores(tmp_path / "b.zarr", METRICS))
    check(read_scores([tmp_path / "b.nc"], METRICS))


@pytest.mark.parametrize(
    "cell", ["", "nan", "NaN", "NA", " n/a ", "null", "None", "<NA>", None, NAN, pd.NA]
)
def test_read_scores__takes_what_says_missing(cell: Any) -> None:
    frame = pd.DataFrame({"sample_id": ["a", "a"], "method": ["p", "q"], "ARI": ["0.5", cell]})
    np.testing.assert_array_equal(read_scores(frame, ["ARI"]).value, [[[0.5], [NAN]]])


COLUMNS = [
    pd.array([1, None], "Int64"), pd.array([1.0, None], "Float32"),
    pd.array([1, None], "double[pyarrow]"), np.array([1.0, NAN], ">f4"), pd.Categorical([1.0, NAN]),
    np.array([1, None], object),
    pd.array(["1", None], "string[pyarrow]"), pd.array([" +1.0e0", ""], "string"),
]  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.dtype))
def test_read_scores__takes_any_column_of_numbers(column: Any) -> None:
    frame = pd.DataFrame({"sample_id": [7, 7], "method": pd.Categorical(["p", "q"])})
    frame["ARI"] = column
    found = read_scores(frame, ["ARI"])
    assert found.datasets == ["7"]
    np.testing.assert_array_equal(found.value, [[[1.0], [NAN]]])


def test_read_scores__takes_files_as_spreadsheets_write_them(tmp_path: Path) -> None:
    text = "\ufeffsample_id;method;ARI\r\n\r\n0010; =1+1 ;0.5\r\n1E5;p;1\r\n"
    (tmp_path / "t.csv").write_text(text, newline="")
    found = read_scores(tmp_path / "t.csv", ["ARI"])
    assert (found.datasets, found.methods) == (["0010", "1E5"], ["=1+1", "p"])
    with gzip.open(tmp_path / "t.tsv.gz", "wt") as file:
        file.write("sample_id\tmethod\tARI\na\tp\t0.5\n")
    np.testing.assert_array_equal(read_scores(tmp_path / "t.tsv.gz", ["ARI"]).value, [[[0.5]]])


def test_read_scores__ignores_what_it_does_not_know() -> None:
    frame = pd.DataFrame({"sample_id": ["a"], "method": ["p"], "ARI": [1], "iLISI": [2]})
    read_scores(frame.assign(note="x"), ["ARI"])
    with pytest.warns(InputWarning, match=r"table 0: columns .* ignored: 'colour', 'mean'"):
        found = read_scores(frame.assign(colour="red", mean=7.0), ["ARI"])
    np.testing.assert_array_equal(found.value, [[[1.0]]])
    long = pd.DataFrame(
        {"sample_id": "a", "method": "p", "metric": ["ARI", "own"], "value": ["1", "?"]}
    )
    with pytest.warns(InputWarning, match=r"metrics that are not known are ignored: 'own'"):
        np.testing.assert_array_equal(read_scores(long, ["ARI"]).value, [[[1.0]]])
    long["value"] = ["1", "2"]
    np.testing.assert_array_equal(read_scores(long, ["own"]).value, [[[2.0]]])


def test_read_scores__joins_left_on_label_metrics() -> None:
    bio = pd.DataFrame({"sample_id": ["a"], "method": ["p"], "ARI": [1.0]})
    batch = pd.DataFrame({"sample_id": ["a", "a"], "method": ["p", "q"], "kBET": [0.5, 0.6]})
    with pytest.warns(InputWarning, match=r"no label metrics are left out: \('a', 'q'\)"):
        found = read_scores([batch, bio], ["ARI", "kBET"])
    assert found.methods == ["p"]
    np.testing.assert_array_equal(found.value, [[[1.0, 0.5]]])
    alone = read_scores(batch, ["ARI", "kBET"])
    np.testing.assert_array_equal(alone.value, [[[NAN, 0.5], [NAN, 0.6]]])
    # A row that is there has a partner, though all of it is NaN.
    kept = read_scores([bio.assign(ARI=NAN), batch[:1]], ["ARI", "kBET"])
    np.testing.assert_array_equal(kept.value, [[[NAN, 0.5]]])


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"sample_id": ["a", "b"], "method": ["p", "p"], "ARI": [1.0, 2.0]} | columns
    )


REFUSED = [
    ([], "there is no table"),
    ({"ARI": [1]}, "expected a Dataset, a data frame, or paths of tables, found dict"),
    (7, "found int"),
    ([7], "table 0: expected a path or a table, found int"),
    (frame().iloc[:0], "no row to rank"),
    (frame().drop(columns="method"), "table 0 has no column 'method'; it has 'sample_id', 'ARI'"),
    (frame().drop(columns="sample_id"), "no column 'sample_id'"),
    (frame(method=["p", " "]), "'method' is empty in row 2 below the header"),
    (frame(sample_id=[None, "b"]), "'sample_id' is empty in row 1 "),
    (frame(sample_id=["a", "a"]), r"table 0 has rows more than once: \('a', 'p'\)"),
    ([frame(), frame().iloc[1:]], r"given twice: \('b', 'p'\), in table 0 and table 1"),
    ([frame(), frame(kBET=0.5).iloc[:1]], r"given twice: \('a', 'p'\)"),
    (frame(metric="x"), "has a column 'metric' but none named 'value'"),
    (long_frame().assign(metric=[""] + ["ARI"] * 14), "'metric' is empty in row 1"),
    (pd.concat([long_frame()] * 2), r"rows more than once: \('001', 'PCA', 'ARI'\)"),
    (frame(ARI=["1", "x"]), r"table 0, row 2 below .* \('b', 'p'\), column 'ARI': 'x' is no"),
    (frame(ARI=["1", "0,5"]), "'0,5' is no number"),
    (frame(ARI=["1", "#DIV/0!"]), "'#DIV/0!' is no number"),
    (frame(ARI=["1", "1_0"]), "'1_0' is no number"),
    (frame(ARI=["1", "\u0661"]), "is no number"),
    (frame(ARI=[True, False]), "True is no number"),
    (frame(ARI=[1j, 0]), "is no number"),
    (frame(ARI=[1.0, np.inf]), "row 2 .* inf is not finite"),
    (frame(ARI=["-Infinity", "1"]), "'-Infinity' is not finite"),
    (frame(iLISI=["x", "1"]), "'x' is no number"),
    (long_frame().assign(value="x"), r"row 1 .* \('001', 'PCA', 'ARI'\), column 'value'"),
    (xr.Dataset({"aggregate_rank": 1}), "no variable 'value' .it has 'aggregate_rank'"),
    (xr.Dataset({"value": ("dataset", [1.0])}), "has the dims 'dataset'; expected 'dataset', '"),
    (dataset().drop_vars("method"), "with their names"),
    (dataset().isel(dataset=[0, 0]), "rows more than once"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "message"), REFUSED)
def test_read_scores__says_what_is_wrong(table: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read_scores(table, ["ARI", "kBET"])


FILES = [
    ("", "has no header"),
    ("\n\n", "has no header"),
    ("sample_id,method,ARI\n", "no row to rank"),
    ("sample_id,method,ARI,ARI\na,p,1,2\n", "the table has more than one column named 'ARI'"),
    ("sample_id,method,ARI\na,p,1,2\n", "not a table with 3 columns"),
    ("sample_id,method,ARI\na,p,one\n", r"row 1 below .* \('a', 'p'\), column 'ARI': 'one'"),
    ("barcode,label\nx,y\n", "has no column 'sample_id'; it has 'barcode', 'label'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FILES)
def test_read_scores__names_the_file(text: str, message: str, tmp_path: Path) -> None:
    (path,) = written(tmp_path, bad=text)
    with pytest.raises(SchemaError, match=message) as caught:
        read_scores(path, ["ARI"])
    assert "no row to rank" in message or str(path) in str(caught.value)
    assert str(caught.value).count(str(path)) <= 1


def test_read_scores__refuses_another_kind_of_table(tmp_path: Path) -> None:
    (path,) = written(tmp_path, t="sample_id,method,barcode\na,p,x\n")
    with (
        pytest.warns(InputWarning, match="'barcode'"),
        pytest.raises(SchemaError, match="is no table of metrics: none of its columns is one of"),
    ):
        read_scores(path, ["ARI"])
    (path,) = written(tmp_path, t="sample_id,method\na,p\n")
    assert np.isnan(read_scores(path, ["ARI"]).value).all(), "every column was NaN throughout"
    with pytest.raises(OSError, match="none.csv"):
        read_scores(tmp_path / "none.csv", ["ARI"])


def test_metric_groups__are_those_of_the_join() -> None:
    assert set(BIO_METRICS) | set(BATCH_METRICS) == set(METRIC_NAMES)
