"""The commands ``croma-dask breakdown`` and ``croma-dask explain``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from croma_dask.cli_options import split_list, storage_option

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["breakdown", "explain"]


@click.command()
@click.argument("result")
@click.option(
    "--by", multiple=True, default=("label",), show_default=True, callback=split_list,
    help="label, confounder, subset or group, or a column's own name; several, by comma or "
    "repeated, give their cells.",
)  # fmt: skip
@click.option("--metric", default="CRoMa", show_default=True, help="CRoMa, RI or MaRI.")
@click.option(
    "--worst", type=click.IntRange(min=1), metavar="N", help="The N worst groups, in place of --by."
)
@click.option(
    "--order", metavar="VARIABLE",
    help="Of --worst: what tells. Default: ltm_alpha of CRoMa, value of RI and MaRI.",
)  # fmt: skip
@click.option(
    "--min-defined", type=click.IntRange(min=0), default=1, show_default=True,
    help="Of --worst: defined samples that a group has at least.",
)  # fmt: skip
@click.option("--model", help="Of --worst and a panel: order by this model, not by the mean.")
@click.option("--m", type=click.IntRange(min=1), help="Of --worst: order by this radius.")
@click.option("--out", metavar="PATH", help="Where it goes: .csv (a row a cell), .zarr or .nc.")
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@click.option("-q", "--quiet", is_flag=True, help="No table.")
def breakdown(
    result: str, by: tuple[str, ...], metric: str, worst: int | None, order: str | None,
    min_defined: int, model: str | None, m: int | None, out: str | None, overwrite: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Tell a metric of every label, confounder level, subset, group, or cell.

    RESULT is what score has written as .zarr or .nc, of one model or several.

    \b
    croma-dask breakdown result.zarr --by label
    croma-dask breakdown result.zarr --by label,center --out cells.csv
    croma-dask breakdown result.zarr --worst 10 --min-defined 50
    """
    from croma_dask.breakdown.table import breakdown as by_cell
    from croma_dask.breakdown.text import breakdown_frame, breakdown_text
    from croma_dask.breakdown.worst import worst_groups
    from croma_dask.results import open_result

    _check_out(out, overwrite=overwrite)
    with open_result(result) as opened:
        if worst is None:
            table = by_cell(opened, by, metric=metric)
        else:
            table = worst_groups(
                opened, worst, metric=metric, order=order, min_defined=min_defined, model=model,
                m=m,
            )  # fmt: skip
    if not quiet:
        click.echo(breakdown_text(table))
    _write(table, breakdown_frame, out, overwrite=overwrite, quiet=quiet)


@click.command()
@click.argument("cohort")
@click.argument("sample_id")
@click.option(
    "--neighbors", metavar="PATH",
    help="Folder of score --keep-neighbors. Without it the embedding is read once.",
)  # fmt: skip
@click.option("--confounder", help="Column of the confounder. Default: that of --neighbors.")
@click.option("--subset", help="Under paired_2x2: which occurrence of the sample.")
@click.option("--design", help="all or paired_2x2. Default: that of --neighbors, or all.")
@click.option(
    "--k", type=click.IntRange(min=1), help="Neighbours to list. Default: those kept, or 51."
)
@click.option(
    "--m", type=click.IntRange(min=1),
    help="SO and OS neighbours to list, and radius of the margin. Default: those kept, or 5.",
)  # fmt: skip
@click.option("--tau", type=float, help="Bandwidth of MaRI, as the result says it.")
@click.option("--label", help="Column of the label. Default: label.")
@click.option("--group", help="Column of the group. Default: group_id.")
@click.option(
    "--sample-id", "id_column", default="sample_id", show_default=True, help="Column of the ids."
)
@click.option("--subset-column", default="subset", show_default=True, help="Column of the subsets.")
@click.option("--skip-incomplete", is_flag=True, help="Leave subsets out that are no complete 2x2.")
@click.option("--out", metavar="PATH", help="Where it goes: .csv (a row a neighbour), .zarr, .nc.")
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@click.option("-q", "--quiet", is_flag=True, help="No table.")
@storage_option
def explain(
    cohort: str, sample_id: str, storage_options: dict[str, str], out: str | None,
    overwrite: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """List the neighbours of one sample, with their types, and what they make of it.

    COHORT is a cohort store, SAMPLE_ID a sample in it.

    \b
    croma-dask explain cohort.zarr slide_7_0031 --neighbors neighbors.zarr
    croma-dask explain cohort.zarr slide_7_0031 --confounder center --k 21 --m 5
    """
    from croma_dask.breakdown.one_sample import explain as run
    from croma_dask.breakdown.text import explanation_frame, explanation_text
    from croma_dask.cohort.store import StoredCohort

    _check_out(out, overwrite=overwrite)
    told = run(StoredCohort(cohort, storage_options), sample_id, **options)
    if not quiet:
        click.echo(explanation_text(told))
    _write(told, explanation_frame, out, overwrite=overwrite, quiet=quiet)


def _check_out(out: str | None, *, overwrite: bool) -> None:
    from croma_dask.results import check_target

    if out is not None:
        if check_target(out, overwrite=overwrite).suffix == ".json":
            raise click.UsageError("--out is .csv, .zarr or .nc here")


def _write(
    data: xr.Dataset, frame_of: Callable[[xr.Dataset], pd.DataFrame], out: str | None,
    *, overwrite: bool, quiet: bool,
) -> None:  # fmt: skip
    """Write a table: as a frame where it is CSV, else labelled."""
    from croma_dask.results import check_target, save

    if out is None:
        return
    target = check_target(out, overwrite=overwrite)
    if target.suffix != ".csv":
        save(data, target, overwrite=overwrite)
    else:
        # Beside the target, so that it is replaced whole by one rename.
        partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
        try:
            frame_of(data).to_csv(partial, index=False)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    if not quiet:
        click.echo(f"\nwritten: {out}")
