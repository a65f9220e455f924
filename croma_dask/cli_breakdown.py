"""The commands ``croma-dask breakdown`` and ``croma-dask explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from croma_dask.cli_options import say, say_written, split_list, storage_option

if TYPE_CHECKING:
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
@click.option("--m", type=click.IntRange(min=1), help="Of --worst: order by this m.")
@click.option(
    "--out", metavar="PATH", help="Where it goes: .csv (a row a cell), .zarr, .nc or .json."
)
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@storage_option
@click.option("-q", "--quiet", is_flag=True, help="No table.")
def breakdown(
    result: str, by: tuple[str, ...], metric: str, worst: int | None, order: str | None,
    min_defined: int, model: str | None, m: int | None, out: str | None, overwrite: bool,
    quiet: bool, storage_options: dict[str, Any],
) -> None:  # fmt: skip
    """Tell a metric of every label, confounder level, subset, group, or cell.

    RESULT is what score has written as .zarr or .nc, of one model or several.

    \b
    croma-dask breakdown result.zarr --by label
    croma-dask breakdown result.zarr --by label,center --out cells.csv
    croma-dask breakdown result.zarr --worst 10 --min-defined 50
    """
    from croma_dask.breakdown.table import breakdown as by_cell
    from croma_dask.breakdown.text import breakdown_text
    from croma_dask.breakdown.worst import worst_groups
    from croma_dask.results import open_result

    _check_options(worst)
    _check_out(out, overwrite=overwrite, storage_options=storage_options)
    with open_result(result, storage_options=storage_options) as opened:
        if worst is None:
            table = by_cell(opened, by, metric=metric)
        else:
            table = worst_groups(
                opened, worst, metric=metric, order=order, min_defined=min_defined, model=model,
                m=m,
            )  # fmt: skip
    if not quiet:
        say(breakdown_text(table))
    _write(table, out, overwrite=overwrite, quiet=quiet, storage_options=storage_options)


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
    help="SO and OS neighbours to list, and m of the margin. Default: those kept, or 5.",
)  # fmt: skip
@click.option("--tau", type=float, help="Bandwidth of MaRI, as the result says it.")
@click.option("--label", help="Column of the label. Default: label.")
@click.option("--group", help="Column of the group. Default: group_id.")
@click.option(
    "--sample-id", "id_column", default="sample_id", show_default=True, help="Column of the ids."
)
@click.option("--subset-column", default="subset", show_default=True, help="Column of the subsets.")
@click.option("--skip-incomplete", is_flag=True, help="Leave subsets out that are no complete 2x2.")
@click.option(
    "--out", metavar="PATH", help="Where it goes: .csv (a row a neighbour), .zarr, .nc or .json."
)
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
    from croma_dask.breakdown.text import explanation_text
    from croma_dask.cohort.store import StoredCohort

    _check_out(out, overwrite=overwrite, storage_options=storage_options)
    told = run(
        StoredCohort(cohort, storage_options), sample_id, storage_options=storage_options,
        **options,
    )  # fmt: skip
    if not quiet:
        say(explanation_text(told))
    _write(told, out, overwrite=overwrite, quiet=quiet, storage_options=storage_options)


def _check_options(worst: int | None) -> None:
    """Refuse what would be ignored: options of --worst without it, and --by beside it."""
    context = click.get_current_context()
    others = ("order", "min_defined", "model", "m") if worst is None else ("by",)
    for name in others:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} is an option of --worst N: give that, or leave {option} out"
                if worst is None
                else "--by and --worst are two tables: cells, or the worst groups; give one of them"
            )


def _check_out(out: str | None, *, overwrite: bool, storage_options: dict[str, Any]) -> None:
    from croma_dask.results import check_target

    if out is not None:
        check_target(out, overwrite=overwrite, storage_options=storage_options)


def _write(
    data: xr.Dataset, out: str | None, *, overwrite: bool, quiet: bool,
    storage_options: dict[str, Any],
) -> None:  # fmt: skip
    from croma_dask.results import save

    if out is None:
        return
    save(data, out, overwrite=overwrite, storage_options=storage_options)
    if not quiet:
        say_written(out)
