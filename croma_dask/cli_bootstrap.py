"""The command ``croma-dask bootstrap``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

__all__ = ["bootstrap"]


@click.command()
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option(
    "--name", "names", multiple=True, metavar="NAME",
    help="Name of a model, once for each RESULT in their order. Default: its file name.",
)  # fmt: skip
@click.option(
    "--draws", type=click.IntRange(min=1), default=2000, show_default=True,
    help="Draws of the groups.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws."
)
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
    show_default=True, help="Of the intervals.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), help="Default: all cores.")
@click.option("--out", metavar="PATH", help="Where it goes: .zarr, .nc, .csv or .json.")
@click.option("--overwrite", is_flag=True, help="Replace a result that is there.")
@click.option("-q", "--quiet", is_flag=True, help="No table.")
def bootstrap(
    results: tuple[str, ...], names: tuple[str, ...], draws: int, seed: int, level: float,
    threads: int | None, out: str | None, overwrite: bool, quiet: bool,
) -> None:  # fmt: skip
    """Tell how sure results are: intervals, differences between models, and ranks.

    Groups of rows (slides, patients) are drawn again, with replacement, and every statistic is
    taken of the rows of the drawn groups: the same groups for all models.

    RESULT is what score has written as .zarr or .nc. Several results of one model each are compared
    as a panel, which has to be of the same rows; so are the models of a panel.

    \b
    croma-dask bootstrap result.zarr
    croma-dask bootstrap uni.zarr virchow.zarr --draws 5000 --out sure.zarr
    """
    from croma_dask.panel.combine import combine_results
    from croma_dask.results import check_target, open_result, save
    from croma_dask.uncertainty.run import bootstrap as run
    from croma_dask.uncertainty.table import bootstrap_text

    if out is not None:
        check_target(out, overwrite=overwrite)
    called = _named(results, names)
    opened = [open_result(place) for place in results]
    try:
        several = len(opened) > 1 or bool(names)
        found = run(
            combine_results(dict(zip(called, opened, strict=True))) if several else opened[0],
            n_draws=draws, seed=seed, level=level, threads=threads,
        )  # fmt: skip
    finally:
        for result in opened:
            result.close()
    if not quiet:
        click.echo(bootstrap_text(found))
    if out is not None:
        save(found, out, overwrite=overwrite)
        if not quiet:
            click.echo(f"\nwritten: {out}")


def _named(results: Sequence[str], names: Sequence[str]) -> list[str]:
    """Name the models: as the caller says, or as their files are called."""
    if names and len(names) != len(results):
        raise click.UsageError(
            f"--name is given {len(names)} times for {len(results)} results; give it once for each"
        )
    found = list(names) or [Path(place).name.removesuffix(Path(place).suffix) for place in results]
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise click.UsageError(
            f"two results are called {twice[0]!r}; name them: --name NAME, once for each RESULT"
        )
    return found
