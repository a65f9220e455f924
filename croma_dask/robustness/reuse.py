"""Neighbours of an earlier search in place of a new one, as far as they are the same."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from croma_dask import __version__, fingerprint
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.location import Location
from croma_dask.cohort.transfer import published
from croma_dask.index.kept import Key, refuse
from croma_dask.index.kept_lists import JoinedLists, Kept, KeptLists, find_kept
from croma_dask.index.kept_writer import check_place, keep_neighbors
from croma_dask.index.neighbors import Neighbors
from croma_dask.index.profile import Profile, check_profile, warn_zero_rows
from croma_dask.index.spec import ListSpec
from croma_dask.robustness.request import Inputs, Request
from croma_dask.search import Found

__all__ = ["fingerprint_of", "key_of", "reuse_or_search", "typed_key_of"]

log = logging.getLogger("croma_dask")

_EXACT_ENGINES = {"small", "direct", "streamed"}


class Search(Protocol):
    """Finds the lists of a spec; `seen` is what an earlier first pass has seen."""

    def __call__(self, inputs: Inputs, spec: ListSpec, seen: Profile | None = None) -> Found:
        """Search."""
        ...


def reuse_or_search(
    inputs: Inputs, request: Request, place: Location, search: Search, keep: contextlib.ExitStack,
    *, index: tuple[str, str] = ("exact", ""),
) -> Found:  # fmt: skip
    """Take the neighbours that are kept at a place, search the rest, and keep that.

    Parameters
    ----------
    inputs, request
        What is scored, and how.
    place
        Folder or URL of kept neighbours; need not be there.
    search
        Runs a search.
    keep
        Deletes what was copied here from a URL when the caller is done.
    index
        Kind of the index that it uses, and the index's parameters as text.

    Raises
    ------
    StoreError
        The place holds something else, or is damaged.
    SchemaError, MemoryLimitError
        As :func:`~croma_dask.index.kept_writer.check_place` and the search say.

    Notes
    -----
    Nothing of the embedding is read where nothing is searched, but of an array its fingerprint.
    Memory: that of the search; what is kept is read and written in blocks.
    """
    spec = request.spec.clipped(max(len(scope) for scope in inputs.scopes))
    kept = find_kept(place)
    left = spec
    if kept is not None:
        inputs, kept = _of_this_cohort(inputs, spec, kept, index)
    if kept is not None:
        left = _left(inputs, request, spec, kept)
        if left != spec:
            kept = kept.nearby(keep)
    if kept is not None and left == ListSpec(0, 0):
        check_profile(kept.profile)
        warn_zero_rows(kept.profile)
        found = Found([], kept.profile, kept.key.embedding)
    else:
        check_place(place, inputs.n_units, left)
        found = search(inputs, left, kept.profile if kept is not None else None)
        if index[0] == "exact" and not {n.engine for n in found.neighbors} <= _EXACT_ENGINES:
            raise RuntimeError("lists of an approximate index kept as exact ones: a defect")
        key = key_of(inputs, found.fingerprint, index)
        old = kept.nearby(keep) if kept and kept.key == key else None
        with _written_to(place) as folder:
            put = keep_neighbors(
                folder, key, inputs.scopes, found.neighbors, left, found.profile, _about(inputs),
                typed_key=typed_key_of(inputs), old=old,
            )  # fmt: skip
        if not put:
            log.warning("another run has meanwhile kept neighbours in %s: those stay", place)
    return found if kept is None or left == spec else _joined(inputs, spec, left, kept, found)


@contextlib.contextmanager
def _written_to(place: Location) -> Iterator[Path]:
    """Yield the folder to write to: the place, or one here that is uploaded at the end."""
    if place.is_local:
        yield Path(place.url)
        return
    with published(place, overwrite=True, check=lambda: refuse(place)) as folder:
        yield folder


def _of_this_cohort(
    inputs: Inputs, spec: ListSpec, kept: Kept, index: tuple[str, str]
) -> tuple[Inputs, Kept | None]:
    """Compare what neighbours depend on; None where something differs, and the log says what.

    An array is fingerprinted only where everything else is the same and something is to be had.
    """
    known = inputs.embedding.fingerprint
    other = key_of(inputs, known or kept.key.embedding, index).differences(kept.key)
    if not other and not known and len(_lacking(inputs, spec, kept)) < len(_wanted(spec)):
        digest = fingerprint_of(inputs.embedding)
        inputs = replace(inputs, embedding=replace(inputs.embedding, fingerprint=digest))
        other = key_of(inputs, digest, index).differences(kept.key)
    if not other:
        return inputs, kept
    log.warning(
        "the neighbours in %s are %s: searching anew, and replacing them",
        kept.shown, " and ".join(other),
    )  # fmt: skip
    return inputs, None


def _left(inputs: Inputs, request: Request, spec: ListSpec, kept: Kept) -> ListSpec:
    """Lengths of the lists that have still to be searched; the log says which and why."""
    lacking = _lacking(inputs, spec, kept)
    parts = [part for part in _wanted(spec) if part not in lacking]
    metrics = [m for m in request.metrics if ("typed" if m == "CRoMa" else "global") in parts]
    if metrics:
        log.warning(
            "neighbours of %s reused: no distances computed for %s", kept.shown, ", ".join(metrics)
        )
    for reason in lacking.values():
        log.warning("%s: searching them, and keeping them in %s", reason, kept.shown)
    return ListSpec(
        spec.n_global if "global" in lacking else 0, spec.n_typed if "typed" in lacking else 0
    )


def _wanted(spec: ListSpec) -> list[str]:
    lengths = {"global": spec.n_global, "typed": spec.n_typed}
    return [part for part, length in lengths.items() if length]


def _lacking(inputs: Inputs, spec: ListSpec, kept: Kept) -> dict[str, str]:
    """Parts that are wanted and not kept, each with the reason."""
    found = {}
    if spec.n_global and not kept.n_global:
        found["global"] = "no neighbours of all types are kept"
    elif spec.n_global > kept.n_global:
        found["global"] = f"the kept neighbours reach k = {kept.n_global}, not {spec.n_global}"
    if spec.n_typed and not kept.n_typed:
        found["typed"] = "no SO and OS neighbours are kept"
    elif spec.n_typed and kept.typed_key != typed_key_of(inputs):
        of = f"{kept.attrs['label_column']!r} and {kept.attrs['confounder_column']!r}"
        found["typed"] = f"the kept SO and OS neighbours are of other labels or confounders ({of})"
    elif spec.n_typed > kept.n_typed:
        found["typed"] = (
            f"the kept SO and OS neighbours reach m = {kept.n_typed}, not {spec.n_typed}"
        )
    return found


def _joined(inputs: Inputs, spec: ListSpec, left: ListSpec, kept: Kept, found: Found) -> Found:
    """Put kept lists and those that were searched now together."""
    joined, start = [], 0
    for number, scope in enumerate(inputs.scopes):
        mine = spec.clipped(len(scope))
        old = KeptLists(kept, start, mine, len(scope))
        start += len(scope)
        if not found.neighbors:
            joined.append(Neighbors(len(scope), mine, old, 0, "kept"))
            continue
        fresh = found.neighbors[number]
        lists = JoinedLists(
            fresh.lists if left.n_global else old, fresh.lists if left.n_typed else old
        )
        joined.append(replace(fresh, spec=mine, lists=lists))
    reused = [part for part in _wanted(spec) if part not in _wanted(left)]
    return replace(found, neighbors=joined, reused=",".join(reused))


def key_of(inputs: Inputs, embedding: str, index: tuple[str, str]) -> Key:
    """Return what the lists of a cohort depend on, by the fingerprint of its embedding."""
    tiles = inputs.embedding.tile_of_row
    parts: list[str | bytes] = [b"" if tiles is None else tiles.astype("<i8").tobytes()]
    for scope in inputs.scopes:
        rows = b"" if scope.rows is None else scope.rows.astype("<i8").tobytes()
        parts += [scope.name, rows, scope.group.astype("<i4").tobytes()]
    release = f"croma-dask {__version__}"
    return Key(embedding, fingerprint.text_digest(*parts), inputs.design, release, *index)


def typed_key_of(inputs: Inputs) -> str:
    """Digest of the labels and confounders that typed lists depend on in addition."""
    codes = ((scope.label, scope.confounder) for scope in inputs.scopes)
    return fingerprint.text_digest(*(c.astype("<i4").tobytes() for pair in codes for c in pair))


def _about(inputs: Inputs) -> dict[str, Any]:
    names = inputs.manifest.names
    return {
        "dataset": inputs.manifest.dataset, "distance": "cosine", "recall": 1.0,
        "label_column": names.label, "confounder_column": names.confounder,
        "group_column": names.group,
    }  # fmt: skip


def fingerprint_of(embedding: Embedding) -> str:
    """Fingerprint of an array, read once in its own chunks."""
    data = embedding.data
    hasher = fingerprint.BlockHasher()
    chunks = getattr(data, "chunks", None)
    rows = chunks[0] if hasattr(data, "dask") and chunks else None
    edges = np.cumsum([0, *rows]) if rows else np.arange(0, embedding.n_tiles + 4096, 4096)
    for lo, hi in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        hasher.update(np.asarray(data[lo : min(hi, embedding.n_tiles)]))
    return hasher.finish((embedding.n_tiles, embedding.n_features), embedding.dtype)
