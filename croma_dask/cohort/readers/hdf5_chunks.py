"""Chunks of HDF5 datasets, undone here or measured before HDF5 undoes them.

HDF5 believes that a filtered chunk has as many bytes as its shape says once the filters are
undone. Of one that has fewer it reads what lies behind it in memory: other numbers of this process,
or none, and the process is gone.
"""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.errors import SchemaError

if TYPE_CHECKING:
    import h5py

__all__ = ["check_rows", "read_rows"]

_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
_Filter = tuple[int, tuple[int, ...]]


def read_rows(dataset: h5py.Dataset, lo: int, hi: int) -> NDArray[Any]:
    """Return rows lo to hi of a dataset of numbers.

    Raises
    ------
    SchemaError
        A chunk has another size than its shape says.

    Notes
    -----
    Chunks that are compressed with gzip or shuffled are decompressed here; all others by HDF5,
    those with checksums after they were measured (which takes their decompression twice). Filters
    that this module does not know (lzf, szip, plug-ins) are HDF5's own affair. Memory: the rows and
    one chunk.
    """
    filters = _filters(dataset)
    known = {code for code, _ in filters}
    if filters and known <= {_DEFLATE, _SHUFFLE} and _is_plain(dataset):
        return _decoded(dataset, filters, lo, hi)
    check_rows(dataset, lo, hi)
    return np.asarray(dataset[lo:hi])


def check_rows(dataset: h5py.Dataset, lo: int, hi: int) -> None:
    """Refuse rows with a chunk that has another size than its shape says."""
    filters = _filters(dataset)
    if filters:
        for offset in _offsets(dataset, lo, hi):
            _chunk(dataset, filters, offset)


def _filters(dataset: h5py.Dataset) -> list[_Filter]:
    """Return codes and parameters of the filters, in the order in which they were applied."""
    if not dataset.chunks:
        return []
    made = dataset.id.get_create_plist()
    found = [made.get_filter(index) for index in range(made.get_nfilters())]
    return [(int(code), tuple(int(v) for v in values)) for code, _, values, _ in found]


def _is_plain(dataset: h5py.Dataset) -> bool:
    """Whether numbers lie in the file as numpy has them; HDF5 knows more kinds."""
    import h5py

    dtype = dataset.dtype
    if dtype.kind not in "fiu":
        return False
    return bool(h5py.h5t.py_create(dtype) == dataset.id.get_type())


def _offsets(dataset: h5py.Dataset, lo: int, hi: int) -> Iterator[tuple[int, ...]]:
    """Yield where the chunks begin that hold rows lo to hi."""
    steps = [int(size) for size in dataset.chunks]
    rows = range(lo - lo % steps[0], hi, steps[0])
    rest = [range(0, int(n), step) for n, step in zip(dataset.shape[1:], steps[1:], strict=True)]
    yield from itertools.product(rows, *rest)


def _decoded(dataset: h5py.Dataset, filters: list[_Filter], lo: int, hi: int) -> NDArray[Any]:
    out = np.empty((hi - lo, *dataset.shape[1:]), dataset.dtype)
    for offset in _offsets(dataset, lo, hi):
        data = _chunk(dataset, filters, offset)
        first = max(lo, offset[0])
        last = min(hi, offset[0] + dataset.chunks[0])
        rest = tuple(
            slice(start, start + size)
            for start, size in zip(offset[1:], dataset.chunks[1:], strict=True)
        )
        target = out[(slice(first - lo, last - lo), *rest)]
        if data is None:
            target[...] = dataset.fillvalue
        else:
            chunk = np.frombuffer(data, dataset.dtype).reshape(dataset.chunks)
            inside = tuple(slice(0, size) for size in target.shape[1:])
            target[...] = chunk[(slice(first - offset[0], last - offset[0]), *inside)]
    return out


def _chunk(dataset: h5py.Dataset, filters: list[_Filter], offset: tuple[int, ...]) -> Any:
    """Return the bytes of a chunk without its filters; None where it was never written.

    Nor where a filter is not known here: then the bytes are only looked at.
    """
    about = dataset.id.get_chunk_info_by_coord(offset)
    if about.byte_offset is None:
        return None
    where = f"the chunk at {offset} of {dataset.name!r}"
    size = os.path.getsize(dataset.file.filename)
    if not 0 < about.size <= size - about.byte_offset:
        raise SchemaError(f"{where} claims {about.size:,} bytes, and the file has {size:,}")
    if not {code for code, _ in filters} <= {_DEFLATE, _SHUFFLE, _FLETCHER32}:
        return None
    try:
        mask, data = dataset.id.read_direct_chunk(offset)
    except MemoryError:
        # Where an index of chunks is damaged, HDF5 finds another entry when it reads than before.
        raise SchemaError(f"{where} claims more bytes than there is memory for") from None
    expected = math.prod(dataset.chunks) * _item_bytes(dataset)
    for position, (code, values) in reversed(list(enumerate(filters))):
        # a filter that made a chunk no smaller may have been left out
        if not mask >> position & 1:
            data = _undo(data, code, values, expected)
    if len(data) != expected:
        raise SchemaError(f"{where} has {len(data):,} bytes, and its shape needs {expected:,}")
    return data


def _item_bytes(dataset: h5py.Dataset) -> int:
    """Return the bytes of an item as it lies in the file."""
    import h5py

    kind = dataset.dtype
    if h5py.check_string_dtype(kind) is None or kind.kind != "O":
        return int(kind.itemsize)
    # a text of any length: its own length, and its place in a heap
    address, _ = dataset.file.id.get_create_plist().get_sizes()
    return 4 + int(address) + 4


def _undo(data: Any, code: int, values: tuple[int, ...], expected: int) -> Any:
    if code == _DEFLATE:
        stream = zlib.decompressobj()
        # a little more than is needed: checksums, and to see that there is too much
        plain = stream.decompress(data, expected + 64)
        return plain if stream.eof else b""
    if code == _FLETCHER32:
        return data[:-4]
    width = values[0] if values else 1
    whole = len(data) // width * width if width > 0 else 0
    if width <= 1 or not whole:
        return data
    planes = np.frombuffer(data, np.uint8, whole).reshape(width, -1)
    items = np.empty(planes.shape[::-1], np.uint8)
    for byte, plane in enumerate(planes):
        items[:, byte] = plane
    return items.tobytes() + bytes(data[whole:])
