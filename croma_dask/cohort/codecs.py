"""Codecs of Zarr arrays that others made: none of them may run code."""

from __future__ import annotations

from typing import Any

from croma_dask.errors import SchemaError

__all__ = ["check_codecs"]


def check_codecs(array: Any, name: str) -> None:
    """Refuse an array whose chunks are pickled.

    Version 2 of the format knows codecs by name, one of which is ``pickle``: older releases of
    numcodecs run what such a chunk asks for when it is read.

    Parameters
    ----------
    array
        Zarr array; none of its chunks is read.
    name
        What a message calls it.

    Raises
    ------
    SchemaError
        A filter or the compressor is one that runs code.
    """
    metadata = array.metadata
    codecs = [*(getattr(metadata, "filters", None) or ()), getattr(metadata, "compressor", None)]
    found = [str(getattr(codec, "codec_id", "")) for codec in codecs if codec is not None]
    if any("pickle" in codec.lower() for codec in found):
        raise SchemaError(
            f"{name} has pickled chunks (codecs {', '.join(found)}), which are never loaded: they "
            "could run any code; write the array again without that codec"
        )
