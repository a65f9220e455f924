"""A report that opens offline: one file with tables, charts and an explorer of the margins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

from croma_dask.errors import SchemaError

__all__ = ["report"]


def report(
    results: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    n_draws: int = 2000,
    seed: int = 0,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Path | str:
    """Write a report of results: one HTML file that needs no network.

    Parameters
    ----------
    results
        What :func:`croma_dask.score` returned, of one model or of a panel, or the path of a saved
        one; several of them, as a sequence or as a mapping of names to them, are put together by
        :func:`croma_dask.combine_results`. Probe sweeps and embedding benchmarks among them get a
        section each.
    path
        Where it goes, ``.html``: a path or an fsspec URL.
    title
        Of the page; by default what was compared.
    n_draws, seed
        Of the bootstrap of groups that the intervals come from, see
        :func:`croma_dask.bootstrap`; with 0 draws there are no intervals.
    overwrite
        Replace a report that is there; nothing else ever is.
    storage_options
        Options of the fsspec file system of places that are URLs: of `results` and of `path`.

    Returns
    -------
    pathlib.Path or str
        The file; the URL.

    Raises
    ------
    SchemaError
        A result is of another kind, or results are not of the same rows; `path` cannot be
        written; before anything long is run.
    StoreError
        A path holds no result.

    Notes
    -----
    The page computes from the margins that it carries, as float32 that keep their order and their
    ties: its numbers are the library's to 1e-6, and which samples are in the tail, n and F(0)
    exactly. Models whose margins float32 cannot tell apart have float64. It takes about 0.9 MB,
    and 4.5 bytes for each sample, model and m (of float64 up to 11).

    Of a result that was opened, the margins of one model are read at a time, once, and once more
    for the bootstrap.

    Memory: the margins of one model at every m, what is packed of all, and the finished page.
    """
    from croma_dask.report.collect import collect
    from croma_dask.report.inputs import gather
    from croma_dask.report.page import check_page_target, render, write_page

    for name, given in (("n_draws", n_draws), ("seed", seed)):
        whole = isinstance(given, Integral) and not isinstance(given, bool)
        if not whole or given < 0:
            raise SchemaError(f"{name} must be a whole number of 0 or above, found {given!r}")
    target = check_page_target(path, overwrite=overwrite, storage_options=storage_options)
    material = gather(results, storage_options)
    with material.told():
        payload, blocks = collect(material, title=title, n_draws=n_draws, seed=seed)
    write_page(render(payload, blocks), target)
    return target if isinstance(target, Path) else str(target)
