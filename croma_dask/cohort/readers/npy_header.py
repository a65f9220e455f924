"""Header of a ``.npy`` array, in a file of its own or in an archive, held against its size."""

from __future__ import annotations

from typing import IO, Any, NamedTuple

import numpy as np

from croma_dask.cohort.readers.trust import claimed_bytes, parsing
from croma_dask.errors import SchemaError

__all__ = ["Header", "read_header"]


class Header(NamedTuple):
    """What the header of a ``.npy`` array says."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the data that follow."""
        return claimed_bytes(self.shape, self.dtype)


def read_header(stream: IO[bytes], size: int, what: str, kind: str) -> Header:
    """Read a header, and leave the stream where the data begin.

    Parameters
    ----------
    stream
        At its first byte.
    size
        Bytes of the whole, header included.
    what, kind
        What is read, and what it should be, for messages: ``"x.npy"``, ``".npy file"``.

    Raises
    ------
    SchemaError
        It is no ``.npy``, holds Python objects, or claims more than `size` bytes.
    """
    with parsing(what, kind):
        try:
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                header = Header(*np.lib.format.read_array_header_1_0(stream))
            elif version in {(2, 0), (3, 0)}:
                # they differ in how names of fields are written, of which nothing depends
                header = Header(*np.lib.format.read_array_header_2_0(stream))
            else:
                raise ValueError(f"version {version} of the format is unknown")
        except MemoryError as err:
            # of at most 10,000 characters: this is how Python's parser says "nested too deeply"
            raise ValueError("its header is nested too deeply") from err
        needed = header.nbytes
        if header.dtype.itemsize == 0:
            raise ValueError(f"its dtype {header.dtype} has no bytes")
    if header.dtype.hasobject:
        raise SchemaError(
            f"{what} has embedding dtype object (pickled Python objects), which is never loaded; "
            "convert to float and save again"
        )
    present = size - stream.tell()
    if needed > present:
        raise SchemaError(
            f"{what} is not a readable {kind}: shape {header.shape} of {header.dtype} takes "
            f"{needed:,} bytes, and it holds {max(0, present):,}; is it truncated?"
        )
    return header
