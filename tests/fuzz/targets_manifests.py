"""Targets: manifests of every kind, and the whole ingest of features with a manifest."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import seeds_features as features
from tests.fuzz.harness import Target, Tree

__all__ = ["TARGETS"]

_TABLE = """sample_id,label,group_id,center
s0,tumour,g0,a
s1,"stro,ma",g0,b
s2,tumour,g1,a
s3,"line
break",g1,b
s4,007,g2,a
s5,é,g2,b
"""


def _text_seeds(folder: Path) -> None:
    raw = _TABLE.encode()
    (folder / "plain.csv").write_bytes(raw)
    (folder / "mark.csv").write_bytes(b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"))
    (folder / "semicolon.csv").write_bytes(raw.replace(b",", b";"))
    (folder / "tabs.tsv").write_bytes(raw.replace(b",", b"\t"))
    (folder / "comment.csv").write_bytes(b"#note\n\n" + raw)
    (folder / "packed.csv.gz").write_bytes(gzip.compress(raw, mtime=0))
    (folder / "bomb.csv.gz").write_bytes(gzip.compress(bytes(1 << 20), 9, mtime=0) * 70)
    (folder / "quote.csv").write_bytes(raw + b'"' + b"x" * 300_000)
    for path in features.shared("lisi_golden/lisi_metadata.tsv.gz"):
        (folder / path.name).write_bytes(path.read_bytes())


def _cells() -> Any:
    """Strategy of delimited text, from cells that are awkward one by one."""
    from hypothesis import strategies as st

    cell = st.one_of(
        st.sampled_from(
            ["", " ", '"', '""', ",", "\t", ";", "\n", "\r", "\0", "NA", "1.0", "=1", "#"]
        ),
        st.text(max_size=8),
        st.floats().map(str),
    )
    quoted = st.one_of(cell, cell.map(lambda text: '"' + text.replace('"', '""') + '"'))
    line = st.lists(quoted, min_size=1, max_size=5)
    names = st.sampled_from(["sample_id", "label", "group_id", "", "é", "label "])
    return st.builds(
        lambda header, lines, mark, end, name: _tree(
            name, end.join(mark.join(cells) for cells in [header, *lines])
        ),
        st.lists(names, min_size=1, max_size=5),
        st.lists(line, max_size=6),
        st.sampled_from([",", "\t", ";"]),
        st.sampled_from(["\n", "\r\n", "\r"]),
        st.sampled_from(["m.csv", "m.tsv", "m.txt"]),
    )


def _tree(name: str, text: str) -> Tree:
    return {name: text.encode("utf-8", "surrogatepass")}


def _run_text(path: Path, work: Path) -> None:
    _read(path)
    _read(path, comment="#")


def _read(path: Path, comment: str | None = None) -> None:
    from croma_dask.cohort.readers.tables import read_manifest
    from croma_dask.cohort.text import to_text

    frame = read_manifest(path, comment=comment)
    assert len(set(frame.columns)) == len(frame.columns)
    for column in frame.columns:
        texts = to_text(frame[column], str(column))
        assert len(texts) == len(frame)
        assert "canary" not in set(texts), "reads a file outside of the input"


def _parquet_seeds(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "sample_id": [f"s{i}" for i in range(6)],
        "label": pa.array(list("xyxyxy")).dictionary_encode(),
        "count": pa.array([1, None, 3, 4, 5, 6], pa.int16()),
        "when": pa.array(np.arange(6), pa.timestamp("us", tz="UTC")),
        "nested": pa.array([[1]] * 6),
        "price": pa.array([1, 2, 3, 4, 5, 6], pa.decimal128(10, 2)),
    }
    for compression in ("none", "snappy", "zstd", "gzip"):
        pq.write_table(
            pa.table(columns), folder / f"{compression}.parquet", compression=compression
        )


def _ingest_seeds(folder: Path) -> None:
    for name, frame in (("plain", _TABLE), ("paired", _paired())):
        (folder / name).mkdir()
        np.save(folder / name / "x.npy", features.rows())
        (folder / name / "m.csv").write_text(frame)
    (folder / "matched").mkdir()
    np.savez(folder / "matched" / "x.npz", x=features.rows(), sample_id=np.array(features.IDS))
    (folder / "matched" / "m.csv").write_text(_TABLE)


def _paired() -> str:
    lines = [f"s{i % 3},{'xy'[i % 2]},g{i % 2},{'ab'[i // 3]},p{i // 3},s{i % 3}" for i in range(6)]
    return "sample_id,label,group_id,center,subset,image_path\n" + "\n".join(lines) + "\n"


def _run_ingest(path: Path, work: Path) -> None:
    """Ingest the one file that is no text with the one that is, and open what came of it."""
    from croma_dask.cohort import ingest, open_cohort
    from croma_dask.errors import SchemaError

    files = sorted(path.iterdir())
    texts = [file for file in files if file.suffix in {".csv", ".tsv", ".txt"}]
    others = [file for file in files if file not in texts]
    if len(texts) != 1 or len(others) != 1:
        raise SchemaError("needs features and a manifest")
    out = work / "cohort.zarr"
    try:
        ingest(others[0], texts[0], out)
    except SchemaError:
        assert not (out / "zarr.json").exists(), "a refused ingest leaves nothing that opens"
        raise
    cohort = open_cohort(out)
    for name in cohort.coords:
        np.asarray(cohort[name].values)
    assert np.isfinite(cohort["embedding"].values).all()


TARGETS = [
    Target("manifest text", _text_seeds, _run_text, build=_cells, quick=8),
    Target("manifest parquet", _parquet_seeds, lambda path, work: _read(path)),
    Target("manifest h5ad", features.h5ad, lambda path, work: _read(path)),
    Target("ingest", _ingest_seeds, _run_ingest, quick=8, follows_links=True),
]
