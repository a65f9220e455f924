"""The commands ``croma-dask plan`` and ``croma-dask score``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from croma_dask.cli_options import (
    cluster_options,
    cohorts_of,
    connected,
    say,
    say_written,
    scratch_options,
    silence_log,
    split_list,
    storage_option,
    store_arguments,
    tell_leaning,
)

__all__ = ["plan", "score"]

F = TypeVar("F", bound=Callable[..., Any])


def whole_numbers(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[int, ...]:
    """Read whole numbers, by comma or repeated."""
    found = []
    for part in split_list(ctx, param, values):
        try:
            found.append(int(part))
        except ValueError as err:
            raise click.BadParameter(f"{part!r} is no whole number") from err
    return tuple(found)


_OPTIONS = [
    click.option("--confounder", required=True, help="Column of the confounder, e.g. center."),
    click.option(
        "--design", default="all", show_default=True, help="all, or paired_2x2 (needs subsets)."
    ),
    click.option(
        "--metrics",
        multiple=True,
        default=("RI,MaRI,CRoMa",),
        show_default=True,
        callback=split_list,
        help="By comma or repeated.",
    ),
    click.option(
        "--k",
        "k_candidates",
        multiple=True,
        default=("5,11,21,51",),
        show_default=True,
        callback=whole_numbers,
        help="Candidates for the operating k, by comma or repeated.",
    ),
    click.option(
        "--m",
        multiple=True,
        default=("5",),
        show_default=True,
        callback=whole_numbers,
        help="m of CRoMa; several by comma or repeated.",
    ),
    click.option("--label", default="label", show_default=True, help="Column of the label."),
    click.option("--group", default="group_id", show_default=True, help="Column of the group."),
    click.option("--sample-id", default="sample_id", show_default=True, help="Column of the ids."),
    click.option("--subset", default="subset", show_default=True, help="Column of the subset."),
    click.option(
        "--skip-incomplete", is_flag=True, help="Leave subsets out that are no complete 2x2."
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        help="Memory the run may take above the bare process (of a worker, on a cluster), e.g. 4GB."
        " Default: six tenths of what there is.",
    ),
    click.option(
        "--threads", type=click.IntRange(min=1), help="Threads of this process. Default: all cores."
    ),
    click.option(
        "--index",
        default="exact",
        show_default=True,
        help="exact, ivf, pynndescent, auto, or the place of an index (croma-dask index).",
    ),
    cluster_options,
    storage_option,
]


def cohort_options(function: F) -> F:
    """Add the options that plan and score share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_INDEX_OPTIONS = [
    click.option(
        "--recall", type=float, default=0.98, show_default=True,
        help="Share of a sample's neighbours that an approximate search has to reach.",
    ),
    click.option(
        "--probes", type=click.IntRange(min=1),
        help="Clusters that a row looks into, in place of what --recall leads to.",
    ),
    click.option(
        "--calibration", type=int, default=1000, show_default=True,
        help="Queries that an approximate search runs exactly as well.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of that sample."),
    click.option(
        "--start-k", type=int, default=200, show_default=True,
        help="Typed candidates that a row meets at least in an approximate search.",
    ),
    click.option(
        "--k-growth-factor", type=float, default=2.0, show_default=True, help="Growth of that."
    ),
]  # fmt: skip


def index_options(function: F) -> F:
    """Add the options of an approximate search."""
    for option in reversed(_INDEX_OPTIONS):
        function = option(function)
    return function


@click.command()
@store_arguments
@cohort_options
def plan(
    stores: tuple[str, ...], names: tuple[str, ...], storage_options: dict[str, str],
    m: tuple[int, ...], **options: Any,
) -> None:  # fmt: skip
    """Tell what scoring a store will cost: tasks, bytes read, memory, time. Runs nothing.

    Of several stores with the same rows: what each costs, and all of them one after the other.

    \b
    croma-dask plan cohort.zarr --confounder center --memory 4GB
    """
    from croma_dask.plan import plan as make

    with connected(options) as client:
        cohort = cohorts_of(stores, names, storage_options)
        found = make(cohort, m=_radii(m), client=client, storage_options=storage_options, **options)
        say(str(found))


@click.command()
@store_arguments
@cohort_options
@click.option("--alpha", type=float, default=0.1, show_default=True, help="Tail of CRoMa.")
@click.option("--tau", type=float, help="Bandwidth of MaRI. Default: the recommended one.")
@click.option(
    "--on-undefined",
    type=click.Choice(["report", "raise"]),
    default="report",
    show_default=True,
    help="What to do about units that CRoMa cannot score.",
)
@index_options
@click.option("--out", metavar="PATH", help="Where the result goes: .zarr, .nc, .csv or .json.")
@click.option("--overwrite", is_flag=True, help="Replace a result that is there.")
@click.option(
    "--keep-neighbors",
    metavar="PATH",
    help="Keep the neighbours in this folder, and take them from there for another confounder.",
)
@scratch_options
@click.option("-q", "--quiet", is_flag=True, help="No progress, no table.")
def score(
    stores: tuple[str, ...], names: tuple[str, ...], storage_options: dict[str, str],
    m: tuple[int, ...], out: str | None, overwrite: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Score a store: RI, MaRI and CRoMa, in one search of its neighbours.

    Several stores are several embeddings of the same rows: they are scored one after the other,
    and ranked.

    A run that was interrupted goes on where it stopped when it is started again with the same
    options. Exit codes: 0 done; 2 bad input or usage; 3 does not fit the allowed memory; 4 nothing
    to score; 130 interrupted.

    \b
    croma-dask score cohort.zarr --confounder center --k 5,11,21 --m 1,5,10 --out result.zarr
    croma-dask score uni.zarr phikon.zarr --confounder center --out panel.zarr
    """
    from croma_dask.cohort.location import Location
    from croma_dask.results import check_target, save, summary
    from croma_dask.resume import scratch_beside
    from croma_dask.score import score as run

    if out is not None:
        check_target(out, overwrite=overwrite, storage_options=storage_options)
        kept = options["keep_neighbors"]
        if kept and Location.of(kept).url == Location.of(out).url:
            raise click.UsageError("--out and --keep-neighbors name the same place")
    if quiet:
        silence_log()
    with contextlib.ExitStack() as keep:
        if out is not None and options["scratch"] is None:
            beside = scratch_beside(out, keep_scratch=options["keep_scratch"])
            options["scratch"] = keep.enter_context(beside)
        with connected(options) as client:
            cohort = cohorts_of(stores, names, storage_options)
            result = run(
                cohort, m=_radii(m), client=client, quiet=quiet, storage_options=storage_options,
                **options,
            )  # fmt: skip
        if not quiet:
            say(summary(result))
            tell_leaning(result)
        if out is not None:
            save(result, out, overwrite=overwrite, storage_options=storage_options)
            if not quiet:
                say_written(out)


def _radii(m: tuple[int, ...]) -> Any:
    """One m is a number, several are a list."""
    return m[0] if len(m) == 1 else list(m)
