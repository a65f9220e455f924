"""The command ``croma-dask index``."""

from __future__ import annotations

from typing import Any

import click

from croma_dask.cli_options import cluster_options, connected, say, storage_option

__all__ = ["index"]


@click.command()
@click.argument("store")
@click.option(
    "--kind",
    type=click.Choice(["ivf", "pynndescent"]),
    default="pynndescent",
    show_default=True,
    help="ivf: rows look into the nearest clusters; pynndescent: a neighbour graph a shard too.",
)
@click.option(
    "--distance", type=click.Choice(["cosine", "euclidean"]), default="cosine", show_default=True,
    help="cosine: for score; euclidean: for benchmark.",
)  # fmt: skip
@click.option("--out", "path", metavar="PATH", help="Default: beside the store.")
@click.option(
    "--cluster-rows", type=click.IntRange(min=1), help="Rows of a cluster. Default: 256 or more."
)
@click.option(
    "--shard-rows", type=click.IntRange(min=1), help="Rows of a shard. Default: what fits --memory."
)
@click.option(
    "--n-neighbors",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="Neighbours of a row in the graph of pynndescent.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace an index that is there.")
@click.option(
    "--memory", metavar="SIZE", help="Memory a process may take. Default: six tenths of all."
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads. Default: all cores.")
@click.option("--scratch", metavar="FOLDER", help="Folder for what it keeps on the way.")
@click.option(
    "--resume/--no-resume", default=True, show_default=True, help="Go on with an unfinished index."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, no last line.")
@cluster_options
@storage_option
def index(store: str, quiet: bool, storage_options: dict[str, str], **options: Any) -> None:
    """Build an approximate index beside a store, for ``score --index KIND``.

    It depends on the rows alone: one index serves every label and confounder column. A build that
    was interrupted goes on with the next shard when it is started again.

    \b
    croma-dask index cohort.zarr --kind ivf
    croma-dask score cohort.zarr --confounder center --index ivf
    """
    from croma_dask.build import build_index
    from croma_dask.cohort.store import StoredCohort

    with connected(options) as client:
        built = build_index(
            StoredCohort(store, storage_options), client=client, quiet=quiet,
            storage_options=storage_options, **options,
        )  # fmt: skip
    if not quiet:
        partition = built.partition
        say(
            f"{built.url}: {built.kind}, {built.n_rows:,} rows in {partition.n_clusters:,} "
            f"clusters and {partition.n_shards:,} shard{'s' * (partition.n_shards != 1)}"
        )
