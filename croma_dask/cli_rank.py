"""The command ``croma-dask rank``."""

from __future__ import annotations

from typing import Any

import click

from croma_dask.cli_options import key_values, say, say_written, split_list, storage_option

__all__ = ["rank"]


@click.command()
@click.argument("tables", nargs=-1, required=True)
@click.option(
    "--weights", multiple=True, metavar="FAMILY=WEIGHT", callback=key_values,
    help="Weight of a family of metrics, instead of its default; repeated. 0 leaves it out.",
)  # fmt: skip
@click.option(
    "--decimals", type=click.IntRange(0, 15), metavar="N",
    help="Round values to so many decimals before they are ranked.",
)  # fmt: skip
@click.option(
    "--baseline", "baselines", multiple=True, metavar="METHOD", callback=split_list,
    help="Method that the others are tested against, by comma or repeated.",
)  # fmt: skip
@click.option(
    "--draws", type=click.IntRange(min=1), default=10_000, show_default=True,
    help="Draws of the bootstrap over data sets.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws."
)
@click.option("--out", metavar="PATH", help="Where it goes: .zarr, .nc, .csv or .json.")
@click.option("--overwrite", is_flag=True, help="Replace a result that is there.")
@storage_option
@click.option("-q", "--quiet", is_flag=True, help="No table.")
def rank(
    tables: tuple[str, ...], weights: dict[str, str], decimals: int | None,
    baselines: tuple[str, ...], draws: int, seed: int, out: str | None, overwrite: bool,
    quiet: bool, storage_options: dict[str, Any],
) -> None:  # fmt: skip
    """Rank methods by the metrics of their embeddings, over one or several data sets.

    TABLES are CSV files with the columns sample_id and method, and either one column a metric or
    the columns metric and value; or saved benchmarks (.nc, .zarr). They are put together: methods
    one below the other, batch metrics beside the metrics of the labels. Printed are positions,
    mean ranks with their bootstrap interval over data sets, ranks by family, and tests.

    --out: .csv holds the table of methods; .zarr, .nc and .json hold everything.

    \b
    croma-dask rank *_metrics_wide.csv --baseline PCA --out ranks.csv
    croma-dask rank benchmark.zarr --weights batch_mixing=0 --decimals 4
    """
    from croma_dask.embedding.rank_report import rank_text, with_ranks
    from croma_dask.embedding.rank_statistics import rank_statistics
    from croma_dask.embedding.ranks import rank_embeddings
    from croma_dask.results import check_target, save

    if out is not None:
        check_target(out, overwrite=overwrite, storage_options=storage_options)
    ranks = rank_embeddings(
        list(tables), weights=_numbers(weights), decimals=decimals,
        storage_options=storage_options,
    )  # fmt: skip
    statistics = rank_statistics(ranks, n_draws=draws, seed=seed, baselines=baselines)
    tree = with_ranks(ranks, statistics)
    if not quiet:
        say(rank_text(tree))
    if out is not None:
        save(tree, out, overwrite=overwrite, storage_options=storage_options)
        if not quiet:
            say_written(out)


def _numbers(weights: dict[str, str]) -> dict[str, float]:
    found = {}
    for family, text in weights.items():
        try:
            found[family] = float(text)
        except ValueError as err:
            raise click.UsageError(f"--weights {family}={text}: {text!r} is no number") from err
    return found
