"""The rows of a search by reference, and the first look at every one of them."""

from __future__ import annotations

import contextlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from croma_dask import fingerprint
from croma_dask.cohort.align import Embedding
from croma_dask.index.profile import Profile, combine_profiles, profile_rows
from croma_dask.index.source import ArraySource, RowSource, StoreSource, spool
from croma_dask.kernels.frame import Distance
from croma_dask.options import Options
from croma_dask.resume import own_folder
from croma_dask.tasks import run_graph

__all__ = ["look_over", "open_source"]

_PROFILE_ROWS = 32 * fingerprint.BLOCK_ROWS

_HELD = 32 << 20
"""Bytes of a lazy array up to which it is simply computed."""


def open_source(
    embedding: Embedding,
    options: Options,
    keep: contextlib.ExitStack,
    *,
    streamed: bool,
    workers: bool,
) -> RowSource:
    """Open the rows by reference; what cannot be opened again elsewhere goes to scratch first."""
    data = embedding.data
    if embedding.stored:
        return StoreSource(data)
    lazy = hasattr(data, "dask")
    size = embedding.n_tiles * embedding.n_features * embedding.dtype.itemsize
    if (lazy and (streamed or size > _HELD)) or (
        streamed and workers and isinstance(data, np.ndarray)
    ):
        folder = own_folder(options, "rows-", keep)
        return spool(data, str(Path(folder) / "rows.npy"), step=4096)
    return ArraySource(np.asarray(data) if lazy else data)


def look_over(
    source: RowSource, embedding: Embedding, options: Options, client: Any,
    distance: Distance = "cosine",
) -> tuple[Profile, str]:  # fmt: skip
    """Look at every row once; hash them on the way where their fingerprint is not known."""
    known = embedding.fingerprint
    spans = [
        (lo, min(source.n_rows, lo + _PROFILE_ROWS))
        for lo in range(0, source.n_rows, _PROFILE_ROWS)
    ]

    def look(span: tuple[int, int]) -> Profile:
        return profile_rows(source, *span, digest=not known, distance=distance)

    if client is not None and len(spans) > 1 and not isinstance(source, ArraySource):
        token = uuid.uuid4().hex
        keys = [f"croma-profile-{token}-{number}" for number in range(len(spans))]
        parts = run_graph({k: (look, span) for k, span in zip(keys, spans, strict=True)}, keys,
                          client=client)  # fmt: skip
    elif len(spans) > 1 and options.n_threads > 1:
        with ThreadPoolExecutor(options.n_threads) as pool:
            parts = list(pool.map(look, spans))
    else:
        parts = [look(span) for span in spans]
    profile = combine_profiles(parts)
    if not known:
        known = fingerprint.combine(
            profile.digests, (source.n_rows, source.n_features), source.dtype
        )
    return profile, known
