"""Manifests as people have them: every cell stays the text that it was."""

from __future__ import annotations

import gzip
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from croma_dask.cohort import StoredCohort, ingest, write_cohort
from croma_dask.cohort.layout import Column
from croma_dask.cohort.readers.tables import read_manifest
from croma_dask.cohort.remarks import warn_alike
from croma_dask.cohort.text import as_frame, factorize_text, match_keys, to_text
from croma_dask.errors import InputWarning, SchemaError


def ingest_csv(tmp_path: Path, content: bytes, name: str = "m.csv", **options: Any) -> StoredCohort:
    """Ingest a manifest of three rows."""
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    (tmp_path / name).write_bytes(content)
    return StoredCohort(ingest(tmp_path / "x.npy", tmp_path / name, tmp_path / "c.zarr", **options))


def test_csv__words_for_missing_zeros_and_exponents_stay_text(tmp_path: Path):
    content = (
        "sample_id,label,center,group_id\n007,NA,None,1E5\n9007199254740993,nan,null,1\n1.0,N/A,,\n"
    )
    store = ingest_csv(tmp_path, content.encode())
    assert store.text("sample_id").tolist() == ["007", "9007199254740993", "1.0"]
    assert store.text("label").tolist() == ["NA", "nan", "N/A"]
    assert store.text("center").tolist() == ["None", "null", ""]
    assert store.codes("center")[0].tolist() == [0, 1, -1]
    assert store.text("group_id").tolist() == ["1E5", "1", ""]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfsample_id, label \na,x\nb,y\nc,x\n",
        b"\xef\xbb\xbf\xef\xbb\xbfsample_id,label\na,x\nb,y\nc,x\n",
        b'\xef\xbb\xbf\xef\xbb\xbf"sample_id","label"\n"a","x"\n"b","y"\n"c","x"\n',
        b"sample_id,label\r\na,x\r\nb,y\r\nc,x\r\n",
        b"sample_id,label\ra,x\rb,y\rc,x\r".replace(b"\r", b"\n"),
        b"\n  \nsample_id,label\n a , x\nb,\xc2\xa0y\n\nc, x",
        b"sample_id;label\na;x\nb;y\nc;x\n",
        b"sample_id\tlabel\na\tx\nb\ty\nc\tx\n",
    ],
    ids=["bom", "double bom", "quoted", "crlf", "lf", "blanks", "semicolon", "tab"],
)
def test_csv__encodings_line_ends_and_padding(tmp_path: Path, content: bytes):
    store = ingest_csv(tmp_path, content)
    assert store.columns == ["sample_id", "label"]
    assert store.text("sample_id").tolist() == ["a", "b", "c"]
    assert store.text("label").tolist() == ["x", "y", "x"]


def test_tsv_and_gzip(tmp_path: Path):
    content = b"sample_id\tlabel\na\tx,1\nb\ty\nc\tx,1\n"
    assert ingest_csv(tmp_path, content, "m.tsv").text("label").tolist() == ["x,1", "y", "x,1"]
    (tmp_path / "m.csv.gz").write_bytes(gzip.compress(b"sample_id,label\na,x\n"))
    assert read_manifest(tmp_path / "m.csv.gz").to_dict("list") == {
        "sample_id": ["a"],
        "label": ["x"],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sample_id,label\na,x\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("sample_id,label\na,ü\n".encode("latin-1"), "is not UTF-8"),
        (
            b"# made by cellxgene\n# on a day\nsample_id,label\na,x\n",
            "first 2 lines start with '#'.*--comment '#'",
        ),
        (b"", "no header"),
        (b"sample_id,label,label\na,x,y\n", "more than one column named 'label'"),
        (b"sample_id, label,label\na,x,y\n", "more than one column named 'label'"),
        (b"sample_id,label\na,x,y\n", "not a table with 2 columns"),
        (b"sample_id,label\na,x\nb,x,y\n", "not a table with 2 columns"),
        (b'sample_id,label\n"a,x\n', "not a table with 2 columns"),
        (b"id,label\na,x\nb,x\nc,x\n", "no column 'sample_id'.*'id', 'label'.*--sample-id"),
        (b"sample_id,label\na,x\nb,x\n", "3 rows and the manifest 2"),
    ],
)
def test_csv__errors_say_what_to_do(tmp_path: Path, content: bytes, message: str):
    with pytest.raises(SchemaError, match=message):
        ingest_csv(tmp_path, content)
    assert not (tmp_path / "c.zarr").exists()


def test_csv__comment_lines_are_skipped_only_before_the_header(tmp_path: Path):
    content = b"# made by\n#\nsample_id,label\na,x#1\nb,#y\nc,x#1\n"
    store = ingest_csv(tmp_path, content, comment="#")
    assert store.text("label").tolist() == ["x#1", "#y", "x#1"]


def test_csv__header_without_names(tmp_path: Path):
    store = ingest_csv(tmp_path, b",label\na,x\nb,y\nc,x\n", sample_id="unnamed_0")
    assert store.text("sample_id").tolist() == ["a", "b", "c"]


def test_manifest__unknown_kind_of_file_or_object(tmp_path: Path):
    (tmp_path / "m.xlsx").write_bytes(b"PK")
    with pytest.raises(SchemaError, match="unknown kind of file.*csv"):
        read_manifest(tmp_path / "m.xlsx")
    with pytest.raises(SchemaError, match="is a int; expected a data frame"):
        read_manifest(3)


def test_named_column_that_is_absent(tmp_path: Path):
    for option in ("label", "group", "sample_id", "subset", "image_path"):
        with pytest.raises(SchemaError, match="'nope' .*not in the manifest|no column 'nope'"):
            ingest_csv(tmp_path, b"sample_id,label\na,x\nb,y\nc,x\n", **{option: "nope"})
    with pytest.raises(SchemaError, match="id column 'nope'"):
        ingest_csv(tmp_path, b"sample_id,label\na,x\nb,y\nc,x\n", id_columns=["sample_id", "nope"])


def test_parquet__dictionary_integers_with_gaps_and_nested_columns(tmp_path: Path):
    table = pa.table(
        {
            "sample_id": pa.array([2**53 + 1, 7, 8]),
            "label": pa.array(["NA", "b", None]).dictionary_encode(),
            "batch": pa.array([2**53 + 1, None, 2]),
            "share": pa.array([1.0, 0.25, None]),
            "polygon": pa.array([[1.0], [2.0, 3.0], []]),
            "flag": pa.array([True, False, None]),
        }
    )
    pq.write_table(table, tmp_path / "m.parquet")
    store = ingest_csv(tmp_path, (tmp_path / "m.parquet").read_bytes(), "m.parquet")
    assert store.text("sample_id").tolist() == ["9007199254740993", "7", "8"]
    assert store.text("label").tolist() == ["NA", "b", ""]
    assert store.text("batch").tolist() == ["9007199254740993", "", "2"]
    assert store.text("share").tolist() == ["1", "0.25", ""]
    assert store.text("flag").tolist() == ["True", "False", ""]
    assert "polygon" not in store.columns


class Polars:
    """What matters of a polars frame: it exports arrow."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def test_column_types__one_result(tmp_path: Path):
    texts = ["b", "a", None, "b"]
    frames = [
        pd.DataFrame({"sample_id": list("1234"), "c": pd.Categorical(texts, ["zz", "b", "a"])}),
        pd.DataFrame({"sample_id": list("1234"), "c": pd.Series(texts, dtype="string[pyarrow]")}),
        pd.DataFrame({"sample_id": list("1234"), "c": pd.Series(texts, dtype="string[python]")}),
        pd.DataFrame({"sample_id": list("1234"), "c": texts}),
        {"sample_id": np.arange(1, 5), "c": np.array(texts, dtype=object)},
        pa.table({"sample_id": [1, 2, 3, 4], "c": pa.array(texts).dictionary_encode()}),
        Polars(pa.table({"sample_id": [1, 2, 3, 4], "c": pa.array(texts).dictionary_encode()})),
    ]
    prints = set()
    for i, frame in enumerate(frames):
        url = write_cohort(tmp_path / f"{i}.zarr", np.eye(4), frame)
        prints.add(StoredCohort(url).fingerprint)
    assert len(prints) == 1


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 1],
        ["1", "2", "1"],
        [1.0, 2.0, 1.0],
        [" 1", "2\t", "1\xa0"],
        np.array([1, 2, 1], ">i2"),
        np.array([1, 2, 1], "f2"),
        np.array(["1", "2", "1"]),
        np.array([b"1", b"2", b"1"]),
        np.array(["1", "2", "1"], np.dtypes.StringDType()),
        pd.array([1, 2, 1], dtype="Int64"),
        pd.array([1.0, 2.0, 1.0], dtype="double[pyarrow]"),
        pd.Index([1, 2, 1]),
        pd.Categorical([1, 2, 1]),
        [1, 2.0, np.float32(1)],
    ],
)
@pytest.mark.filterwarnings("ignore:.*differ only by blanks")
def test_text__integers_and_integral_floats_are_one_class(values: Any):
    codes, names = factorize_text(values, "label")
    assert codes.dtype == np.int32
    assert (codes.tolist(), names) == ([0, 1, 0], ["1", "2"])


@pytest.mark.parametrize("values", [[1, "1", 1.0], [1, True], ["a", 1], [b"a", "a"]])
def test_text__mixed_columns_raise(values: list[Any]):
    with pytest.raises(SchemaError, match="'label' mixes values of type"):
        factorize_text(values, "label")


@pytest.mark.parametrize(
    "values",
    [[[1], [2]], [{}, {}], np.array([1j]), np.zeros((2, 2)), np.zeros(2, "V2"), ["\ud800"]],
)
def test_text__what_is_no_label_raises(values: Any):
    with pytest.raises(SchemaError, match="'label'"):
        factorize_text(values, "label")


def test_text__missing_of_every_kind():
    for missing in (None, np.nan, pd.NA, pd.NaT, "", "  ", "\xa0"):
        assert factorize_text(["a", missing], "x")[0].tolist() == [0, -1]
    assert to_text([None, None], "x").tolist() == ["", ""]
    assert factorize_text([], "x")[1] == []


def test_text__merged_classes_are_reported():
    with pytest.warns(InputWarning, match="'label'.*blanks.*'a'"):
        codes, names = factorize_text(["a", " a", "b"], "label")
    assert codes.tolist() == [0, 0, 1]
    assert names == ["a", "b"]


def test_text__unused_categories_are_dropped():
    values = pd.Categorical(["b", "a"], categories=["zzz", "a", "b"], ordered=True)
    assert factorize_text(values, "x")[1] == ["a", "b"]


def test_text__accents_are_kept_and_compared_composed():
    decomposed = "U\u0308ber"
    assert to_text([decomposed], "x").tolist() == [decomposed]
    assert match_keys([decomposed]) == match_keys(["\u00dcber"])


def test_frame__mapping_of_unequal_columns():
    with pytest.raises(SchemaError, match="differ in length"):
        as_frame({"a": [1, 2], "b": [1]})
    with pytest.raises(SchemaError, match="more than one column named 'a'"):
        as_frame(pd.DataFrame([[1, 2]], columns=["a", "a "]))


def alike(*columns: list[str], names: str = "abc", **options: Any) -> list[str]:
    """Write a cohort with these columns; return what was warned of."""
    n = len(columns[0])
    frame = {"sample_id": [f"s{i}" for i in range(n)]} | dict(zip(names, columns, strict=False))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        write_cohort("memory://alike.zarr", np.ones((n, 2)), frame, overwrite=True, **options)
    assert {one.category for one in said} <= {InputWarning}
    return [str(one.message) for one in said]


def test_levels_that_look_alike__are_named_with_their_counts():
    said = alike(
        ["Aachen"] * 8 + ["aachen"] * 2 + ["Bonn"] * 2,
        ["T cell", "Tcell", "T  cell", "B cell"] * 3,
        ["caf\u00e9"] * 6 + ["cafe\u0301"] * 6,
    )
    assert said[0] == (
        "column 'a' has levels that differ only in case or blanks, and are different ones (rows of "
        "each): 'Aachen' (8), 'aachen' (2); if they mean the same, write them alike"
    )
    assert "'T  cell' (3), 'T cell' (3), 'Tcell' (3); if" in said[1]
    assert "column 'c'" in said[2]
    assert len(said) == 3


def test_levels_that_look_alike__once_for_a_column_of_two_names_and_missing_cells():
    (said,) = alike(["x", "X", "", "y"] * 3, label="a")
    assert "column 'a'" in said
    assert "'X' (3), 'x' (3)" in said


@pytest.mark.parametrize(
    ("column", "options"),
    [
        (["1 2", "12"] * 6, {}),
        (["a", "b", "a b"] * 4, {}),
        ([f"{'abcdef'[i // 2]}{'xX'[i % 2]}" for i in range(12)], {}),
        ([f"{'abcdef'[i // 2]}{'xX'[i % 2]}" for i in range(12)], {"sample_id": "a"}),
        (["x", "X"] * 6, {"id_columns": ["a", "sample_id"]}),
    ],
)
def test_levels_that_look_alike__numbers_ids_and_names_of_rows_are_let_be(
    column: list[str], options: dict[str, Any]
):
    assert alike(column, **options) == []


def test_levels_that_look_alike__cost_nothing_and_many_are_let_be():
    n = 1_000_000
    codes = (np.arange(n) % 10_000).astype(np.int32)
    levels = sorted(["X0", *(f"x{i}" for i in range(9_999))])
    start = time.perf_counter()
    with pytest.warns(InputWarning, match="'X0' .100., 'x0' .100."):
        warn_alike([Column("c", "category", codes, levels)])
    assert time.perf_counter() - start < 0.5
    warn_alike([Column("c", "category", codes, [*levels, "x_"])])


@pytest.mark.parametrize("name", ["m.csv", "m.csv.gz"])
def test_text__with_a_nul_byte_is_refused_with_its_line(tmp_path: Path, name: str):
    """It ended the cell: two labels became one."""
    text = b"sample_id,label\na,tumour\nb,tumour\0a\nc,tumour\0b\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(SchemaError, match=f"{name} has a NUL byte in line 3"):
        read_manifest(tmp_path / name)
