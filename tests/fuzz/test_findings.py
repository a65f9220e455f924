"""What fuzzing has found in the readers of features and manifests: each a file of a few bytes.

The readers gave another library's exception, asked for memory by what a header claimed, read other
files, hung, or took the process with them.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from croma_dask.cohort import ingest, open_cohort
from croma_dask.cohort.readers import hdf5_vetting, open_reader
from croma_dask.cohort.readers.tables import read_manifest
from croma_dask.cohort.readers.trust import check_chunks, check_expansion, parsing
from croma_dask.cohort.text import to_text
from croma_dask.errors import (
    CromaDaskError,
    InputWarning,
    MemoryLimitError,
    SchemaError,
    StoreError,
)

N, D = 6, 4
X = np.arange(N * D, dtype="f4").reshape(N, D)
IDS = [f"s{i}" for i in range(N)]


def refused(path: Path, match: str, key: str | None = None) -> None:
    with (
        pytest.raises(CromaDaskError, match=match) as info,
        contextlib.closing(open_reader(path, key=key)) as reader,
    ):
        reader.read(0, min(reader.shape[0], 3))
    assert len(str(info.value)) < 600


# .npy


def npy(path: Path, header: str, data: bytes = X.tobytes(), version: bytes = b"\1\0") -> Path:
    raw = header.encode()
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(raw))
    path.write_bytes(b"\x93NUMPY" + version + size + raw + data)
    return path


def header(shape: str = "(6, 4)", descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (header("(1152921504606846976, 4)"), "takes 18,446,744,073,709,551,616 bytes"),  # overflow
        (header("(9223372036854775808, 0)"), "not a readable .npy"),
        (header("(1000000000000, 4)"), "it holds 96; is it truncated"),
        (header("(-6, -4)"), "negative size"),
        (header("(2147483647, 1048576)", "'|S0'"), "has no bytes"),  # asked for 2 PiB
        (header("(0, 9223372036854775807)"), "not a readable .npy"),
        (header("(6.0, 4)"), "not a readable .npy"),
        (header(descr="'|O'"), "never loaded"),
        (header(descr="[('a', '|O')]"), "never loaded"),
        (header(descr="'x' * 9"), "not a readable .npy"),
        (header(descr="{}"), "not a readable .npy"),
        ("", "not a readable .npy"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (6, 4)", "not a readable .npy"),
        ("(" * 500 + ")" * 500, "not a readable .npy"),  # MemoryError of the parser
        ("[" * 5000, "not a readable .npy"),
        ("-" * 9000 + "1", "not a readable .npy"),  # RecursionError
        ("__import__('os').system('x')", "not a readable .npy"),
    ],
)
def test_npy__header_that_claims_or_nests_too_much(tmp_path: Path, text: str, message: str):
    refused(npy(tmp_path / "x.npy", text), message)


def test_npy__unknown_version_and_header_longer_than_the_file(tmp_path: Path):
    refused(npy(tmp_path / "x.npy", header(), version=b"\4\0"), "not a readable .npy")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\2\0" + b"\xff" * 4 + header().encode())
    refused(tmp_path / "x.npy", "not a readable .npy")


def test_npy__more_features_than_a_row_can_have(tmp_path: Path):
    with open(tmp_path / "x.npy", "wb") as file:
        file.write(npy(tmp_path / "y.npy", header("(1, 8388608)"), b"").read_bytes())
        file.truncate(file.tell() + 4 * 2**23)
    refused(tmp_path / "x.npy", "8,388,608 features; expected at most")


# .npz


def archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def member(shape: str = "(6, 4)", data: bytes = X.tobytes(), fortran: bool = False) -> bytes:
    text = header(shape).replace("False", str(fortran)).encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize("fortran", [False, True])
def test_npz__member_that_claims_more_than_it_holds(tmp_path: Path, fortran: bool):
    members = {"x.npy": member("(1000000000000, 4)", fortran=fortran)}
    refused(archive(tmp_path / "x.npz", members), "takes 16,000,000,000,000 bytes")


def test_npz__vector_that_claims_more_than_it_holds(tmp_path: Path):
    members = {f"a-{i}.npy": member("(1099511627776,)") for i in range(3)}
    refused(archive(tmp_path / "x.npz", members), "it holds 96")


def test_npz__member_that_grows_a_thousandfold_is_not_held(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("croma_dask.cohort.readers.trust.UNCHECKED_BYTES", 2**20)
    zeros = member("(1000000, 1)", bytes(4_000_000), fortran=True)
    refused(archive(tmp_path / "x.npz", {"x.npy": zeros}), "made to exhaust memory")
    # row by row it is read in pieces
    zeros = member("(1000000, 1)", bytes(4_000_000))
    with contextlib.closing(open_reader(archive(tmp_path / "x.npz", {"x.npy": zeros}))) as reader:
        assert reader.shape == (1_000_000, 1)


def test_npz__names_that_lead_elsewhere_are_only_names(tmp_path: Path):
    outside = tmp_path / "up"
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "x.npy", X)
    path = archive(tmp_path / "in" / "x.npz", {"../x.npy": member(data=(X + 1).tobytes())})
    reader = open_reader(path)
    np.testing.assert_array_equal(reader.read(0, N), X + 1)
    reader.close()
    assert not outside.exists()
    assert sorted(os.listdir(tmp_path)) == ["in", "x.npy"]


@pytest.mark.parametrize("field", [20, 24, 42])
@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 2])
def test_npz__directory_that_lies(tmp_path: Path, field: int, value: int):
    """Of sizes, and of where a member begins: refused, or read as it is."""
    raw = bytearray(archive(tmp_path / "x.npz", {"x.npy": member()}).read_bytes())
    at = raw.index(b"PK\1\2") + field
    raw[at : at + 4] = struct.pack("<I", value)
    (tmp_path / "x.npz").write_bytes(raw)
    with (
        contextlib.suppress(SchemaError),
        contextlib.closing(open_reader(tmp_path / "x.npz")) as reader,
    ):
        np.testing.assert_array_equal(reader.read(0, N), X)


@pytest.mark.parametrize("suffix", [".npz", ".zip"])
def test_archive__member_that_would_end_behind_its_end(tmp_path: Path, suffix: str):
    """A stored one: its bytes are asked for at once, as many as the directory claims."""
    path = archive(tmp_path / f"x{suffix}", {"x.npy": member()}, zipfile.ZIP_STORED)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\1\2")
    raw[at + 20 : at + 28] = struct.pack("<II", 2**31, 2**31)
    path.write_bytes(raw)
    refused(path, "directory claims 2,147,483,648 bytes for the member 'x.npy'")


def test_npz__encrypted_or_compressed_in_an_unknown_way(tmp_path: Path):
    raw = bytearray(archive(tmp_path / "x.npz", {"x.npy": member()}).read_bytes())
    for offset, value in ((8, 1), (10, 77)):
        damaged = bytearray(raw)
        damaged[raw.index(b"PK\1\2") + offset] = value
        (tmp_path / "x.npz").write_bytes(damaged)
        refused(tmp_path / "x.npz", "x.npz, member 'x' is not a readable array")


# HDF5: other files


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Files that nobody gave to a reader, beside the folder of those that were given."""
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.bin").write_bytes(np.full((N, D), 7e30).tobytes())
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["features"] = np.full((N, D), 7e30)
        file["sample_id"] = ["secret"] * N
    return tmp_path / "in"


def test_hdf5__links_to_other_files_are_not_followed(secret: Path):
    with h5py.File(secret / "x.h5", "w") as file:
        file["features"] = h5py.ExternalLink("../secret.h5", "features")
    refused(secret / "x.h5", "'features' is a link to another file .'../secret.h5'")
    refused(secret / "x.h5", "link to another file", "features")
    with h5py.File(secret / "y.h5", "w") as file:
        file["x"] = X
        file["sample_id"] = h5py.ExternalLink("../secret.h5", "sample_id")
    refused(secret / "y.h5", "'sample_id' is a link to another file")
    with h5py.File(secret / "z.h5", "w") as file:
        file["other"] = h5py.ExternalLink("../secret.h5", "/")
        file["features"] = h5py.SoftLink("/other/features")
    refused(secret / "z.h5", "'other' is a link to another file")


def test_hdf5__link_to_a_pipe_is_not_opened(secret: Path):
    """Opening it would wait for ever."""
    os.mkfifo(secret / "pipe")
    with h5py.File(secret / "x.h5", "w") as file:
        file["features"] = h5py.ExternalLink("pipe", "features")
    refused(secret / "x.h5", "link to another file")


def test_hdf5__numbers_in_other_files_are_not_read(secret: Path):
    with h5py.File(secret / "x.h5", "w") as file:
        raw = [(str(secret.parent / "secret.bin"), 0, N * D * 8)]
        file.create_dataset("features", (N, D), "<f8", external=raw)
    refused(secret / "x.h5", "keeps its numbers in another file")
    with h5py.File(secret / "y.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((N, D), "<f8")
        layout[:] = h5py.VirtualSource("../secret.h5", "features", (N, D))
        file.create_virtual_dataset("features", layout)
    refused(secret / "y.h5", "put together from other files .'../secret.h5'")


def test_hdf5__links_and_virtual_datasets_within_a_file_are_read(tmp_path: Path):
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        file["a/part"] = X
        layout = h5py.VirtualLayout((N, D), "f4")
        layout[:] = h5py.VirtualSource(".", "a/part", (N, D))
        file.create_virtual_dataset("virtual", layout)
        file["features"] = h5py.SoftLink("/virtual")
    reader = open_reader(tmp_path / "x.h5")
    np.testing.assert_array_equal(reader.read(0, N), X)
    reader.close()


def test_hdf5__links_in_a_circle(tmp_path: Path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["features"] = h5py.SoftLink("/b")
        file["b"] = h5py.SoftLink("/features")
    refused(tmp_path / "x.h5", "circle")


def test_h5ad__links_to_other_files_are_not_followed(secret: Path):
    for part in ("X", "obsm/a", "obs/_index", "obs/label", "obs/label/categories"):
        with h5py.File(secret / "x.h5ad", "w") as file:
            h5ad(file)
            if part in file:
                del file[part]
            file[part] = h5py.ExternalLink("../secret.h5", "features")
        refused(secret / "x.h5ad", "link to another file", "obsm/a" if part == "obsm/a" else "X")


# HDF5: sizes


def test_hdf5__claims_that_nothing_backs(tmp_path: Path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("features", (2**40, D), "f4", chunks=(4, D))
    refused(tmp_path / "x.h5", "claims 274,877,906,944 chunks, more than a hundred times")
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file.create_dataset("features", (N, 2**40), "f4", chunks=(1, 2**20))
    refused(tmp_path / "y.h5", "features; expected at most|claims")
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file.create_dataset("features", (2**20, 2**10), "f4", chunks=(2**19, 2**10))
    refused(tmp_path / "z.h5", "a chunk claims 2,147,483,648 bytes of which the file holds 0")


def test_hdf5__ids_that_nothing_backs(tmp_path: Path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("features", (2**40, D), "f4")
        file.create_dataset("sample_id", (2**40,), "i8")
    with pytest.warns(InputWarning, match="its numbers are not there"):
        refused(tmp_path / "x.h5", "the ids of x.h5 claims 8,796,093,022,208 bytes")


def test_hdf5__rows_never_written_are_reported(tmp_path: Path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("features", (N, D), "f4", chunks=(2, D))
        data[:2] = X[:2]
    with pytest.warns(InputWarning, match="2 of 3 chunks are not there and read as 0"):
        open_reader(tmp_path / "x.h5").close()


def h5ad(file: Any) -> None:
    obs = file.create_group("obs")
    obs.attrs.update({"_index": "_index", "column-order": ["label"]})
    obs["_index"] = IDS
    label = obs.create_group("label")
    label["codes"], label["categories"] = np.zeros(N, "i1"), ["x"]
    file["X"] = X


def sparse(file: Any, kind: str = "csr", **parts: Any) -> None:
    del file["X"]
    group = file.create_group("X")
    group.attrs["encoding-type"] = f"{kind}_matrix"
    group.attrs["shape"] = parts.pop("shape", (N, D))
    whole = {
        "data": np.ones(N, "f4"),
        "indices": np.zeros(N, "i4"),
        "indptr": np.arange(N + 1) if kind == "csr" else np.array([0, 6, 6, 6, 6]),
    }
    for part, values in (whole | parts).items():
        group[part] = values


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("csr", {"indices": np.full(N, -1)}),  # counted from the end, in silence
        ("csr", {"indices": np.full(N, D)}),
        ("csr", {"indices": np.zeros(N)}),
        ("csr", {"indices": np.zeros(3, "i4")}),
        ("csr", {"indptr": np.array([0, 5, 1, 2, 3, 4, 6])}),
        ("csr", {"indptr": np.array([-3, 0, 1, 2, 3, 4, 6])}),
        ("csr", {"indptr": np.arange(3)}),
        ("csr", {"indptr": np.zeros((2, 2), "i4")}),
        ("csr", {"shape": (2**50, D)}),
        ("csr", {"shape": (N,)}),
        ("csc", {"indices": np.full(N, -1)}),
        ("csc", {"indices": np.full(N, N)}),
        ("csc", {"shape": (N, 2**50)}),
    ],
)
def test_h5ad__sparse_matrix_that_contradicts_itself(tmp_path: Path, kind: str, parts: dict):
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        h5ad(file)
        sparse(file, kind, **parts)
    refused(tmp_path / "x.h5ad", r"x\.h5ad|damaged")


def test_h5ad__categories_that_do_not_fit(tmp_path: Path):
    cases: list[tuple[str, Any, str]] = [
        ("obs/label/codes", np.full(N, 3, "i1"), "code 3 and 1 categories"),
        ("obs/label/codes", np.zeros(3, "i1"), "'label' has 3 entries, the index 6"),
        ("obs/label/codes", np.zeros(N), "no whole numbers"),
        ("obs/_index", np.zeros((N, 2)), "obs has no array '_index', which it names as its index"),
    ]
    for part, values, message in cases:
        with h5py.File(tmp_path / "x.h5ad", "w") as file:
            h5ad(file)
            del file[part]
            file[part] = values
        refused(tmp_path / "x.h5ad", message)
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        h5ad(file)
        del file["obs/label"]
        file["obs/label"] = np.zeros(N, "i1")
        file["obs/label"].attrs["categories"] = "/X"
    refused(tmp_path / "x.h5ad", "categories are no reference")


# HDF5: chunks


@pytest.mark.parametrize(
    ("options", "raw"),
    [
        ({"compression": "gzip"}, zlib.compress(bytes(10))),
        ({"compression": "gzip"}, zlib.compress(bytes(10**6))),
        ({"compression": "gzip"}, zlib.compress(X.tobytes())[:-9]),
        ({"compression": "gzip"}, b"nonsense"),
        ({"shuffle": True}, bytes(10)),
        ({"shuffle": True, "fletcher32": True}, bytes(3)),
        ({"compression": "gzip", "fletcher32": True}, zlib.compress(bytes(10)) + bytes(4)),
    ],
)
def test_hdf5__chunk_of_another_size_than_its_shape(tmp_path: Path, options: dict, raw: bytes):
    """HDF5 crashes on it, or gives what lies behind it in memory."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("features", X.shape, "f4", chunks=X.shape, **options)
        data.id.write_direct_chunk((0, 0), raw)
    refused(tmp_path / "x.h5", r"x\.h5 is damaged|the chunk at \(0, 0\)|HDF5 library crashes on it")


_FILTERS: list[dict[str, Any]] = [
    {},
    {"compression": "gzip"},
    {"compression": "gzip", "shuffle": True},
    {"shuffle": True},
    {"compression": "gzip", "fletcher32": True},
    {"compression": "lzf", "shuffle": True},
]


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2", "|b1", "<f2"])
@pytest.mark.parametrize("filters", _FILTERS)
def test_hdf5__chunks_are_read_as_hdf5_reads_them(tmp_path: Path, filters: dict, dtype: str):
    _read_back(tmp_path / "x.h5", filters, dtype)


def test_hdf5__chunks_with_a_filter_of_whole_numbers(tmp_path: Path):
    _read_back(tmp_path / "x.h5", {"scaleoffset": 0}, "<i2")


def _read_back(path: Path, filters: dict[str, Any], dtype: str) -> None:
    x = (np.arange(23 * 7).reshape(23, 7) % 5).astype(dtype)
    with h5py.File(path, "w") as file:
        data = file.create_dataset(
            "features", (29, 7), dtype, chunks=(4, 3), fillvalue=1, **filters
        )
        data[:23] = x
    whole = np.concatenate([x, np.ones((6, 7), dtype)])
    with pytest.warns(InputWarning, match="6 of 24 chunks are not there"):
        reader = open_reader(path)
    for lo, hi in ((0, 29), (3, 5), (4, 8), (22, 29), (28, 29)):
        np.testing.assert_array_equal(reader.read(lo, hi), whole[lo:hi])
    assert reader.read(0, 3).dtype == np.dtype(dtype)
    reader.close()


def test_h5ad__compressed_text_and_columns(tmp_path: Path):
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        h5ad(file)
        for name, values in (("text", IDS), ("count", np.arange(N))):
            column = file["obs"].create_dataset(
                name, data=values, chunks=(4,), compression="gzip", shuffle=True
            )
        assert column.chunks
    frame = read_manifest(tmp_path / "x.h5ad")
    assert frame["text"].tolist() == IDS
    assert frame["count"].tolist() == list(range(N))


# HDF5: a library that does not come back

_SMALL = (
    "c-rlh!Ab)$5Qb;6T?nOO3PP=y?$M)fpkh~hD7L7F9^1qE0J_57^r&y*qxcBEO--6fNft!tMa2Ju<!3UPNjCY(+hl"
    "yX*FEZzLu=}gp_sK`4%0Z~m!d5CD*CR%c(%z&x$W-zH+forcT<*b_PRw_=cMCR6Znrz%JaF?g~Y*6A1a-9U#;q=h"
    "w719zC7D;U8dak;1C~sRem5W|D9%br*3Ay7?HPdK?6;LXUXT*(Jrr)Z>Z(ZG7eTZtsOPLdJnhPvoX_lb5vyT<}UQ"
    "*Ufb_wPn^ouK?nAfSCStxZz{~ziaPPP^On)6=K=Vcm(%#Wx|mHldUj%eIqIsZ<Lb|SoFD)I00000008jU_yQ*pIO"
    "P"
)


def small(path: Path, at: int | None = None, value: int = 0) -> Path:
    """An HDF5 file of features and one attribute, with a byte of it changed."""
    raw = bytearray(zlib.decompress(base64.b85decode(_SMALL)))
    if at is not None:
        raw[at] = value
    path.write_bytes(raw)
    return path


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that looks at files gives up early; one that waits already is not asked."""
    monkeypatch.setattr(hdf5_vetting, "SECONDS", 0.3)
    monkeypatch.setattr(hdf5_vetting, "_running", {})


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("at", "value"), [(2088, 0), (2112, 0), (1449, 255)])
def test_hdf5__library_that_loops_or_crashes_does_so_elsewhere(tmp_path: Path, at: int, value: int):
    refused(small(tmp_path / "x.h5", at, value), "the HDF5 library (does not come back|crashes)")


_INDEX_AT_ODDS = (
    "c-rgqaB<`1lHy_j0S*oZ76t(ZWbhvf4oIN#Ve$!3nh{EOK<O1sFmXn(98^1lAk=(xbs<5nt{~O_(E!XI0~QF4>N>"
    "K(e})kZ7@3EryFFYT13+{Hl&=7#PcWgXb8~eJ2?o-|iMa(isqvX9#i;4ijMVUAV1wvogz+^XG!sOC4XO^BJmGu>h"
    "6XUn3{3eTm4XWP3>;t)2L=;v29y8LcwhyJg5;T)AqH|YSb+JAP=7Ij<>C1PZaOnGC#2=1mLzAS78x5s#5tfjjhTt"
    "Lf)(L3Ca@G3SWpxX!G8WOj9^zm<AFeWg5}o@;tZnz34qEwMqt#Smv=4%^ljkBUJj#!FHm(ZXz3FjSO{QOhnB4vYS"
    "0Q^RCP?F5jqM+!6+CYFu+Z^`q3B|1*2dT3_kGShmhD07BMM%dj|&~a?oRFa3s|X79ObwJVFnCIDn0?xBtfN!A*`C"
    ";NB0=01%x$-+mscW`KMGF~i;gM9=P=DqcJq#iIZTu#X18C>RB!4cuW07#UdM<B=R-3Nqfu$cQ=~38R^z<BP(KAU4"
    "u?BNJr25k6kXcmO)WBZOw-j6oe905rLF(*"
)
"""A file of 6 KiB, by zlib and base 85: its index of chunks says 68 bytes, and then 4 GiB."""


@pytest.mark.filterwarnings("ignore")
def test_hdf5__chunk_that_claims_more_when_it_is_read(tmp_path: Path):
    path = tmp_path / "x.h5"
    path.write_bytes(zlib.decompress(base64.b85decode(_INDEX_AT_ODDS)))
    code = """
import resource, sys
from croma_dask.cohort.readers import open_reader
from croma_dask.errors import SchemaError
reader = open_reader(sys.argv[1], key=None)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
try:
    reader.read(0, 6)
except SchemaError as err:
    print("refused", err)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert "refused" in done.stdout


@pytest.mark.usefixtures("hurried")
def test_hdf5__one_process_looks_at_a_whole_folder(tmp_path: Path, monkeypatch):
    started: list[Any] = []
    popen = hdf5_vetting.subprocess.Popen
    monkeypatch.setattr(
        hdf5_vetting.subprocess, "Popen", lambda *a, **k: started.append(a) or popen(*a, **k)
    )
    for name in "abc":
        small(tmp_path / f"{name}.h5")
    reader = open_reader(tmp_path)
    np.testing.assert_array_equal(reader.read(0, 6), np.ones((6, 2)))
    reader.close()
    assert len(started) == 1
    open_reader(tmp_path).close()
    assert len(started) == 1, "they have not changed since"
    small(tmp_path / "b.h5", 2088, 0)
    with pytest.raises(SchemaError, match="b.h5 is not a readable HDF5 file"):
        open_reader(tmp_path)


def test_hdf5__without_a_python_to_start_files_are_read(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sys, "executable", None)
    with contextlib.closing(open_reader(small(tmp_path / "x.h5"))) as reader:
        assert reader.shape == (2, 2)


# parquet


def table(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet__text_that_is_none(tmp_path: Path):
    text = pa.array([b"a", b"\x80"]).cast(pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 2, text.buffers())
    pq.write_table(pa.table({"sample_id": broken, "label": ["x", "y"]}), tmp_path / "m.parquet")
    with pytest.raises(SchemaError, match="damaged"):
        read_manifest(tmp_path / "m.parquet")


def test_parquet__time_that_python_has_no_value_for(tmp_path: Path):
    when = pa.array([2**62, 0]).cast(pa.timestamp("us"))
    frame = read_manifest(table(tmp_path / "m.parquet", sample_id=["a", "b"], when=when))
    with pytest.raises(SchemaError, match="'when' holds a value that cannot be read"):
        to_text(frame["when"], "when")


def _footer(path: Path, change: Any) -> None:
    """Change the Thrift bytes at the end of a parquet file."""
    raw = path.read_bytes()
    size = struct.unpack("<I", raw[-8:-4])[0]
    footer = change(raw[-8 - size : -8])
    path.write_bytes(raw[: -8 - size] + footer + struct.pack("<I", len(footer)) + b"PAR1")


def test_parquet__metadata_of_a_column_are_not_looked_at(tmp_path: Path):
    """Where the histogram of its levels is damaged pyarrow aborts the process on them."""
    path = table(tmp_path / "m.parquet", sample_id=["a", "b"], label=["x", "y"])
    found = []

    class Columns:
        def __init__(self, group: Any) -> None:
            self.num_rows, self.total_byte_size = group.num_rows, group.total_byte_size

    real = pq.ParquetFile

    class Watching(real):  # type: ignore[misc, valid-type]
        @property
        def metadata(self) -> Any:
            about = super().metadata

            class Metadata:
                num_rows, num_row_groups = about.num_rows, about.num_row_groups

                def row_group(self, index: int) -> Columns:
                    found.append(index)
                    return Columns(about.row_group(index))

            return Metadata()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq, "ParquetFile", Watching)
        assert len(read_manifest(path)) == 2
    assert found


def test_parquet__number_of_rows_that_is_not_that_of_its_parts(tmp_path: Path):
    path = table(tmp_path / "x.parquet", f0=X[:, 0], f1=X[:, 1])
    # num_rows is an i64 after the schema: field 3 of the footer, delta 1, zigzag 12
    _footer(path, lambda footer: footer.replace(b"\x16\x0c", b"\x16\x7e", 1))
    assert pq.ParquetFile(path).metadata.num_rows != N
    refused(path, "x.parquet is damaged: it claims")


def test_parquet__columns_that_claim_more_than_the_file_could_hold(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("croma_dask.cohort.readers.trust.UNCHECKED_BYTES", 2**20)
    path = table(tmp_path / "m.parquet", label=pa.array(["x"] * 2_000_000).dictionary_encode())
    assert path.stat().st_size < 10_000
    with pytest.raises(SchemaError, match="claims 16,000,000 bytes"):
        read_manifest(path)


# text


def test_text__that_grows_out_of_measure(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("croma_dask.cohort.readers.trust.UNCHECKED_BYTES", 2**20)
    path = tmp_path / "m.csv.gz"
    path.write_bytes(
        b"".join([gzip.compress(b"sample_id,label\n"), gzip.compress(bytes(2**20)) * 4])
    )
    with pytest.raises(SchemaError, match=r"m\.csv\.gz claims .* made to exhaust memory"):
        read_manifest(path)


def test_text__compressed_and_damaged(tmp_path: Path):
    raw = gzip.compress(b"sample_id,label\n" + b"a,b\n" * 100, mtime=0)
    for broken in (raw[:20], raw[:10] + b"\xff" * 20, raw[:-8] + bytes(8), b"\x1f\x8b", b"x"):
        (tmp_path / "m.csv.gz").write_bytes(broken)
        with pytest.raises(SchemaError, match=r"m\.csv\.gz"):
            read_manifest(tmp_path / "m.csv.gz")


def test_text__header_of_one_long_cell(tmp_path: Path):
    (tmp_path / "m.csv").write_text("x" * 200_000 + "\na\n")
    with pytest.raises(SchemaError, match="field larger than field limit"):
        read_manifest(tmp_path / "m.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n" + "," * 300_000 + "\n", "with 2 columns .*row 0 has 300,001 cells"),
        ("a,b\n\n \n" + "x" * 200_000 + "," * 300_000 + "\n", "row 0 has 300,001 cells"),
        (",".join(map(str, range(30_000))) + "\n", "30,000 columns; expected at most 20,000"),
    ],
)
def test_text__more_cells_than_a_table_has(tmp_path: Path, text: str, message: str):
    """Each column takes pandas 0.05 ms."""
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(SchemaError, match=message):
        read_manifest(tmp_path / "m.csv")


def test_text__a_label_of_a_megabyte_is_read(tmp_path: Path):
    label = "x" * 10**6
    (tmp_path / "m.csv").write_text(f'sample_id,label\na,"{label}\n"\nb,y\n')
    assert read_manifest(tmp_path / "m.csv")["label"].str.strip().tolist() == [label, "y"]


def test_text__a_folder_by_that_name(tmp_path: Path):
    (tmp_path / "m.csv").mkdir()
    with pytest.raises(SchemaError, match="is a folder; expected a file"):
        read_manifest(tmp_path / "m.csv")


# Zarr


def test_zarr__links_are_not_followed(secret: Path):
    zarr.save_array(secret / "x.zarr", X, zarr_format=3)
    chunk = secret / "x.zarr" / "c" / "0" / "0"
    chunk.unlink()
    chunk.symlink_to(secret.parent / "secret.bin")
    with pytest.raises(StoreError, match="symbolic links"):
        open_reader(secret / "x.zarr")
    (secret / "y.zarr").mkdir()
    (secret / "y.zarr" / "zarr.json").symlink_to("/dev/zero")  # never ends
    with pytest.raises(StoreError, match="symbolic links"):
        open_reader(secret / "y.zarr")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"shape":[6,4]', b'"shape":[1152921504606846976,4]'),
        (b'"shape":[6,4]', b'"shape":[6,1152921504606846976]'),
        (b'"shape":[6,4]', b'"shape":[-6,4]'),
        (b'"shape":[6,4]', b'"shape":null'),
        (b'"chunk_shape":[6,4]', b'"chunk_shape":[1099511627776,4]'),
        (b'"chunk_shape":[6,4]', b'"chunk_shape":[0,4]'),
        (b'"chunk_shape":[6,4]', b'"chunk_shape":[6]'),
        (b'"data_type":"float32"', b'"data_type":"complex128"'),
        (b'"data_type":"float32"', b'"data_type":7'),
        (b'"node_type":"array"', b'"node_type":"group"'),
        (b'"zarr_format":3', b'"zarr_format":9'),
        (b"{", b"[" * 100_000),
        (b"}", b"NaN"),
    ],
)
def test_zarr__metadata_that_claim_too_much(tmp_path: Path, old: bytes, new: bytes):
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(6, 4), zarr_format=3)
    path = tmp_path / "x.zarr" / "zarr.json"
    # as short as it can be, so that it can be searched
    raw = json.dumps(json.loads(path.read_bytes()), separators=(",", ":")).encode()
    assert old in raw
    path.write_bytes(raw.replace(old, new, 1))
    refused(tmp_path / "x.zarr", "x.zarr")


def test_zarr__archive_with_a_member_that_grows(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("croma_dask.cohort.readers.trust.UNCHECKED_BYTES", 2**20)
    archive(tmp_path / "x.zip", {"zarr.json": b"{}", "c/0/0": bytes(4 << 20)})
    refused(tmp_path / "x.zip", "member 'c/0/0' claims 4,194,304 bytes")
    (tmp_path / "y.zip").write_bytes(b"PK")
    refused(tmp_path / "y.zip", "y.zip is not a readable Zarr archive")


def test_zarr__chunk_whose_own_header_claims_too_much(tmp_path: Path, monkeypatch):
    """What blosc believes; here memory is short at once."""
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(6, 4), zarr_format=2)
    with contextlib.closing(open_reader(tmp_path / "x.zarr")) as reader:

        def short(index: int) -> None:
            raise MemoryError

        monkeypatch.setattr(reader._rows, "_load", short)
        with pytest.raises(MemoryLimitError, match="x.zarr: a chunk asks for more memory"):
            reader.read(0, N)


@pytest.mark.filterwarnings("ignore:Object at:UserWarning")
def test_zarr__group_that_is_its_own_child(tmp_path: Path):
    """A member without a name, in an archive: going down would take half a minute."""
    about = json.dumps({"zarr_format": 2}).encode()
    path = archive(tmp_path / "x.zip", {".zgroup": about, "/.zgroup": about, "/a/.zgroup": about})
    refused(path, "groups in groups, 20 deep")


# folders of slides


def test_folder__entries_that_are_no_files(tmp_path: Path):
    for suffix in (".h5", ".npy", ".npz"):
        folder = tmp_path / suffix[1:]
        (folder / f"a{suffix}").mkdir(parents=True)
        refused(folder, f"a{suffix}")
        (folder / f"a{suffix}").rmdir()
        (folder / f"a{suffix}").symlink_to("nowhere")
        refused(folder, f"a{suffix}")


def test_folder__links_that_lead_out_are_read_and_named(tmp_path: Path):
    """Links are how slides are chosen from a larger folder."""
    np.save(tmp_path / "x.npy", X)
    folder = tmp_path / "chosen"
    folder.mkdir()
    np.save(folder / "a.npy", X)
    (folder / "c.npy").symlink_to("a.npy")
    open_reader(folder).close()
    (folder / "b.npy").symlink_to(tmp_path / "x.npy")
    with pytest.warns(InputWarning, match="'b.npy' of 3 files are links that lead out of it"):
        assert open_reader(folder).shape == (3 * N, D)


# rules


def test_trust__what_is_small_or_backed_by_bytes_is_believed():
    check_expansion(0, 256 * 2**20, "x")
    check_expansion(10**9, 10**11, "x")
    check_chunks(10_000, 0, "x")
    check_chunks(10**7, 10**5, "x")
    with pytest.raises(SchemaError, match="10,001 chunks, more than a hundred times"):
        check_chunks(10_001, 100, "x")
    for args in ((0, 256 * 2**20 + 1), (10**9, 10**11 + 1)):
        with pytest.raises(SchemaError, match="x claims"):
            check_expansion(*args, "x")


def test_trust__what_a_parser_raises_names_the_file():
    for error in (IndexError("a\n  b"), OverflowError(), struct.error("c"), zipfile.BadZipFile()):
        with pytest.raises(SchemaError, match=r"^x is damaged: ") as info, parsing("x"):
            raise error
        assert "\n" not in str(info.value)
        assert info.value.__cause__ is error
    for passing in (MemoryError(), PermissionError(), InputWarning(), StoreError("y")):
        with pytest.raises(type(passing)), parsing("x"):
            raise passing


def test_ingest__refused_input_leaves_nothing_that_opens(tmp_path: Path):
    np.save(tmp_path / "x.npy", X)
    raw = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(raw[:-4])
    frame = pd.DataFrame({"sample_id": IDS, "label": list("xyxyxy")})
    with pytest.raises(SchemaError, match="truncated"):
        ingest(tmp_path / "x.npy", frame, tmp_path / "out.zarr")
    with pytest.raises(StoreError):
        open_cohort(tmp_path / "out.zarr")
