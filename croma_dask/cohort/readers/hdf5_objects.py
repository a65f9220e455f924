"""Objects of an HDF5 file, found and read so that nothing outside of that file is.

An HDF5 file may refer to others: by a link (external link), by keeping the numbers of a dataset
elsewhere (external storage), or by putting a dataset together from those of other files (virtual
dataset). A file that came from somewhere else could so make us read any other one, or wait for a
pipe for ever. Such objects are refused before the other file is opened.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.readers.hdf5_chunks import check_rows
from croma_dask.cohort.readers.trust import check_chunks, check_expansion, claimed_bytes
from croma_dask.errors import InputWarning, SchemaError

if TYPE_CHECKING:
    import h5py

__all__ = ["check_dataset", "datasets", "find", "read_whole", "warn_absent"]

_LONGEST_CHAIN = 20
_LEAST_CHUNK = 800  # bytes, of a hundred chunks: trust.check_chunks allows for as many
_MOST_CHUNKS = 1_000_000  # as hdf5_walk.py has it


def find(group: Any, path: str, depth: int = 0) -> Any:
    """Return the object at a path in a file, through links of that file; None where there is none.

    Parameters
    ----------
    group
        Group that the path begins at; the root where it starts with ``/``.
    path
        Names, separated by ``/``.
    depth
        Links that were followed already.

    Raises
    ------
    SchemaError
        A link leads to another file, or links lead to each other; the object is a dataset whose
        numbers lie in another file, or whose chunks are larger than the file could hold.
    """
    import h5py

    item: Any = group.file["/"] if path.startswith("/") else group
    for part in path.split("/"):
        if part in {"", "."}:
            continue
        link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else None
        if link is None:
            return None
        if isinstance(link, h5py.ExternalLink):
            raise SchemaError(
                f"{_name(group)}: {part!r} is a link to another file ({link.filename!r}), which is "
                "not followed; copy the data into one file, or give the other file"
            )
        if isinstance(link, h5py.SoftLink):
            if depth >= _LONGEST_CHAIN:
                raise SchemaError(f"{_name(group)}: the link {part!r} leads in a circle")
            item = find(item, link.path, depth + 1)
        else:
            item = item[part]
    if isinstance(item, h5py.Dataset):
        check_dataset(item, depth)
    return item


def datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield every dataset of a file with its path; links are not followed."""
    import h5py

    found: dict[str, h5py.Dataset] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item

    file.visititems(visit)
    yield from found.items()


def check_dataset(dataset: h5py.Dataset, depth: int = 0) -> None:
    """Refuse a dataset whose numbers lie in another file, or whose chunks fit no memory."""
    what = f"{_name(dataset)}, dataset {dataset.name!r}"
    if dataset.external:
        raise SchemaError(
            f"{what} keeps its numbers in another file ({dataset.external[0][0]!r}), which is not "
            "read; copy the data into one file"
        )
    if dataset.is_virtual:
        sources = dataset.virtual_sources()
        other = [source.file_name for source in sources if source.file_name != "."]
        if other:
            raise SchemaError(
                f"{what} is put together from other files ({other[0]!r}), which are not read; copy "
                "the data into one file, or give the other files"
            )
        if depth >= _LONGEST_CHAIN:
            raise SchemaError(f"{what} is put together from itself")
        for source in sources:
            part = find(
                dataset,
                source.dset_name if source.dset_name[:1] == "/" else f"/{source.dset_name}",
                depth + 1,
            )
            # HDF5 reads it on its own, whenever it is asked for the whole
            if part is not None and part.ndim:
                check_rows(part, 0, len(part))
    if dataset.chunks:
        chunk = claimed_bytes(dataset.chunks, dataset.dtype)
        check_expansion(dataset.id.get_storage_size(), chunk, f"{what}: a chunk")
        claimed = _n_chunks(dataset)
        # there are at most as many as have a place in the file's index of them
        check_chunks(claimed, os.path.getsize(dataset.file.filename) // _LEAST_CHUNK, what)


def _n_chunks(dataset: h5py.Dataset) -> int:
    sizes = zip(dataset.shape, dataset.chunks, strict=True)
    return math.prod(-(-int(size) // int(chunk)) for size, chunk in sizes)


def read_whole(dataset: Any, what: str, *, text: bool = False) -> NDArray[Any]:
    """Read all of a dataset, where the file may hold that much.

    Parameters
    ----------
    dataset
        As :func:`find` returns it.
    what
        For messages.
    text
        Strings come as `str`.

    Raises
    ------
    SchemaError
        It claims far more than the file holds, or it is no dataset.
    """
    import h5py

    if not isinstance(dataset, h5py.Dataset):
        raise SchemaError(f"{what} is no dataset")
    check_expansion(
        dataset.id.get_storage_size(), int(dataset.size or 0) * dataset.dtype.itemsize, what
    )
    if dataset.ndim:
        check_rows(dataset, 0, len(dataset))
    if text:
        return np.asarray(dataset.asstr()[...], dtype=object)
    return np.asarray(dataset[...])


def warn_absent(dataset: h5py.Dataset, what: str) -> None:
    """Warn where numbers were never written: they read as the fill value."""
    if dataset.is_virtual or not dataset.size:
        return
    if dataset.chunks:
        total = _n_chunks(dataset)
        if total > _MOST_CHUNKS:  # counting them would take longer than anybody waits
            return
        absent = total - int(dataset.id.get_num_chunks())
        if absent <= 0:
            return
        found = f"{absent} of {total} chunks are"
    elif dataset.id.get_storage_size() == 0:
        found = "its numbers are"
    else:
        return
    warnings.warn(
        f"{what}: {found} not there and read as {dataset.fillvalue}; was it written to the end?",
        InputWarning,
        stacklevel=3,
    )


def _name(item: Any) -> str:
    return os.path.basename(str(item.file.filename))
