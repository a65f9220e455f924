"""The command ``croma-dask report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from croma_dask.cli_options import say, storage_option

__all__ = ["report"]


@click.command()
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option("--out", required=True, metavar="PATH", help="Where the page goes, .html.")
@click.option("--title", help="Title of the page. Default: what was compared.")
@click.option(
    "--name", "names", multiple=True,
    help="Name of a result, once for each in their order. Default: its file name.",
)  # fmt: skip
@click.option(
    "--draws", type=click.IntRange(min=0), default=2000, show_default=True,
    help="Draws of the bootstrap over groups; 0: no intervals.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws."
)
@click.option("--overwrite", is_flag=True, help="Replace a report that is there.")
@storage_option
@click.option("-q", "--quiet", is_flag=True, help="No last line.")
def report(
    results: tuple[str, ...], out: str, title: str | None, names: tuple[str, ...], draws: int,
    seed: int, overwrite: bool, quiet: bool, storage_options: dict[str, Any],
) -> None:  # fmt: skip
    """Make a page of results: one file that opens offline, to look at and to hand on.

    RESULT is what `croma-dask score --out` has written (.zarr, .nc). Several are compared as models
    of one cohort, which they have to be; probe sweeps and embedding benchmarks get a section each.

    \b
    croma-dask report result.zarr --out report.html
    croma-dask report uni.zarr virchow.zarr --name UNI --name Virchow --out models.html
    """
    from croma_dask.memory import format_bytes
    from croma_dask.panel.names import result_names
    from croma_dask.report import report as run

    # Files of one name, from several folders, are told apart by a number.
    chosen = dict(zip(result_names(results, names), results, strict=True)) if names else results
    path = run(
        chosen, out, title=title, n_draws=draws, seed=seed, overwrite=overwrite,
        storage_options=storage_options,
    )  # fmt: skip
    if not quiet:
        size = f" ({format_bytes(path.stat().st_size)})" if isinstance(path, Path) else ""
        say(f"written: {path}{size}")
