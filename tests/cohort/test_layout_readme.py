"""stores/README.md is enough to read a store: this reader knows no more than that page."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import zarr

from croma_dask.cohort import StoredCohort, write_cohort


def framed(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.hexdigest()


def crc32c(content: bytes) -> int:
    """CRC-32C bit by bit, as its definition has it."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def metadata_checksum(path: Path) -> str:
    root = json.loads((path / "zarr.json").read_text())
    attributes = {k: v for k, v in root["attributes"].items() if k != "layout_checksum"}
    covered = {"attributes": attributes, "metadata": root["consolidated_metadata"]["metadata"]}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_by_the_page(path: Path) -> tuple[np.ndarray, dict[str, list[str]], dict[str, str]]:
    """Read features by sample, columns as text, and the fingerprints computed from them."""
    attrs = json.loads((path / "zarr.json").read_text())["attributes"]
    assert (attrs["format"], attrs["format_version"]) == ("croma-dask cohort", 1)
    assert attrs["status"] == "complete"
    meta = json.loads((path / "embedding/zarr.json").read_text())
    codecs = [codec["name"] for codec in meta["codecs"]]
    assert codecs in (["bytes"], ["bytes", "crc32c"])
    (rows, width), chunk = meta["shape"], meta["chunk_grid"]["configuration"]["chunk_shape"][0]
    dtype = np.dtype(meta["data_type"]).newbyteorder("<")
    files = [(path / f"embedding/c/{i}/0").read_bytes() for i in range(-(-rows // chunk))]
    if codecs[-1] == "crc32c":
        last = files[-1]
        assert last[-4:] == crc32c(last[:-4]).to_bytes(4, "little")
        files = [file[:-4] for file in files]
    chunks = [np.frombuffer(file, dtype).reshape(chunk, width) for file in files]
    features = np.concatenate(chunks)[:rows]
    digests = b"".join(
        hashlib.sha256(features[i : i + 4096].tobytes()).digest() for i in range(0, rows, 4096)
    )
    head = f"croma-dask embedding 1 ({rows}, {width}) {dtype.str}"
    embedding = hashlib.sha256(head.encode() + digests).hexdigest()
    group = zarr.open_group(str(path), mode="r")
    columns, parts = {}, {}
    for entry in json.loads(attrs["columns"]):
        values = group[entry["array"]][:]
        if entry["kind"] == "category":
            names = [str(name) for name in group[f"{entry['array']}_name"][:]]
            codes = values
        else:
            names = sorted({str(value) for value in values} - {""})
            codes = np.array([names.index(v) if v else -1 for v in values], dtype="<i4")
        columns[entry["name"]] = ["" if code < 0 else names[code] for code in codes]
        parts[entry["name"]] = (codes.astype("<i4").tobytes(), framed(*names))
    pieces: list[str | bytes] = ["croma-dask manifest 1"]
    for name in sorted(parts):
        pieces += [name, *parts[name]]
    if "tile_of_sample" in group:
        tiles = group["tile_of_sample"][:]
        pieces += ["tiles", tiles.astype("<i8").tobytes()]
        features = features[tiles]
    manifest = framed(*pieces)
    return (
        features,
        columns,
        {
            "embedding_fingerprint": embedding,
            "manifest_fingerprint": manifest,
            "fingerprint": framed(embedding, manifest),
        },
    )


@pytest.mark.parametrize("paired", [False, True])
def test_page__is_enough_to_read_a_store(tmp_path: Path, rng, paired: bool):
    n = 9000
    x = rng.standard_normal((n, 3)).astype("f2")
    ids = [f"肿瘤/{i}" for i in range(n)]
    if paired:
        ids, x = ids[: n // 2] * 2, x[np.r_[: n // 2, : n // 2]]
    manifest = {
        "sample_id": ids,
        "diagnosis": np.where(np.arange(n) % 5, np.arange(n) % 3, -1).astype(str),
        "a/b": [None, "NA", "b"] * (n // 3),
        "subset": np.repeat(["p", "q"], n // 2),
    }
    path = tmp_path / "c.zarr"
    write_cohort(path, x, manifest, label="diagnosis", chunk_rows=1000)
    features, columns, prints = read_by_the_page(path)
    np.testing.assert_array_equal(features, x)
    assert columns["sample_id"] == ids
    assert columns["a/b"] == ["", "NA", "b"] * (n // 3)
    assert columns["label"] == columns["diagnosis"] == manifest["diagnosis"].tolist()
    attrs = StoredCohort(path).attrs
    assert prints == {name: attrs[name] for name in prints}
    assert metadata_checksum(path) == attrs["layout_checksum"]


def test_page__holds_for_the_demo_stores():
    for path in (Path(__file__).parents[2] / "stores").glob("*.zarr"):
        features, columns, prints = read_by_the_page(path)
        attrs = StoredCohort(path).attrs
        assert prints == {name: attrs[name] for name in prints}
        assert len(features) == len(columns["sample_id"])
