"""The command ``croma-dask probe``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import click

from croma_dask.cli_options import (
    cluster_options,
    connected,
    key_values,
    say,
    say_written,
    scratch_options,
    silence_log,
    split_list,
    storage_option,
)

__all__ = ["probe"]


@click.command()
@click.argument("store")
@click.option("--confounder", required=True, help="Column of the confounder, e.g. center.")
@click.option("--label", default="label", show_default=True, help="Column of the label.")
@click.option(
    "--schedule", required=True,
    help="camelyon, tcga or tolkach_esca; linear:SLIDES:SPLITS, for a cohort of your own; or a "
    "JSON file or its URL [[[[confounder, class, rows], ...], max_train_slides], ...].",
)  # fmt: skip
@click.option(
    "--rows-per-slide", type=click.IntRange(min=1),
    help="Rows of a slide, shuffled as one. Default: 1, or the size of --slide's slides.",
)  # fmt: skip
@click.option("--slide", help="Column that names the slide of each row, to be checked.")
@click.option(
    "--confounders", "confounder_order", multiple=True, callback=split_list,
    help="Levels in the schedule's order, by comma or repeated; rows of others are left out.",
)  # fmt: skip
@click.option(
    "--labels", "label_order", multiple=True, callback=split_list,
    help="Classes in the schedule's order, by comma or repeated.",
)  # fmt: skip
@click.option(
    "--test-store", "test_stores", multiple=True, metavar="NAME=STORE", callback=key_values,
    help="Another cohort store that the probes are scored on as well.",
)  # fmt: skip
@click.option(
    "--test-rows", "test_rows", multiple=True, metavar="NAME=COLUMN:VALUE", callback=key_values,
    help="Rows of this store that the probes are scored on as well, e.g. unseen=center:UMCU.",
)  # fmt: skip
@click.option("--iterations", type=int, default=20, show_default=True, help="Replicates.")
@click.option("--seed", type=int, default=1000, show_default=True, help="Of the replicates.")
@click.option(
    "--validation-fraction", type=float,
    help="Validation rows as a share of the training rows. Default: one slide of the largest.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE",
    help="Memory the run may take above the bare process (of a worker, on a cluster), e.g. 4GB."
    " Default: six tenths of what there is.",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of this process. Default: all cores."
)
@cluster_options
@storage_option
@click.option("--plan", "only_plan", is_flag=True, help="Tell what it will cost, and run nothing.")
@click.option("--out", metavar="PATH", help="Where the result goes: .zarr, .nc, .csv or .json.")
@click.option("--overwrite", is_flag=True, help="Replace a result that is there.")
@scratch_options
@click.option("-q", "--quiet", is_flag=True, help="No progress, no table.")
def probe(
    store: str, schedule: str, test_stores: dict[str, str], test_rows: dict[str, str],
    storage_options: dict[str, str], only_plan: bool, out: str | None, overwrite: bool,
    quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Tell what a confounder costs a probe: train from balanced to confounded, score held-out rows.

    A run that was interrupted goes on where it stopped when it is started again with the same
    options. Exit codes: 0 done; 2 bad input or usage; 3 does not fit the allowed memory; 130
    interrupted.

    \b
    croma-dask probe cohort.zarr --confounder center --schedule linear:10:5 \\
        --validation-fraction 0.1 --out sweep.zarr
    croma-dask probe camelyon.zarr --confounder center --schedule camelyon --rows-per-slide 300
    """
    from croma_dask.cohort.store import StoredCohort
    from croma_dask.probe.cohorts import plan_probe_sweep, sweep_cohort
    from croma_dask.results import check_target, save, summary
    from croma_dask.resume import scratch_beside

    if out is not None and not only_plan:
        check_target(out, overwrite=overwrite, storage_options=storage_options)
    for name in ("confounder_order", "label_order"):
        options[name] = list(options[name]) or None
    twice = sorted(set(test_stores) & set(test_rows))
    if twice:
        raise click.UsageError(f"test set {twice[0]!r} is given twice")
    cohort = StoredCohort(store, storage_options)
    options["test_sets"] = {
        **{name: StoredCohort(place, storage_options) for name, place in test_stores.items()},
        **{name: _selection(name, text) for name, text in test_rows.items()},
    }
    options["schedule"] = _schedule(schedule, cohort, options, storage_options)
    if quiet:
        silence_log()
    with contextlib.ExitStack() as keep:
        if only_plan:
            of_run = {"scratch", "resume", "keep_scratch"}
            with connected(options) as client:
                told = {k: v for k, v in options.items() if k not in of_run}
                say(str(plan_probe_sweep(cohort, client=client, **told)))
            return
        if out is not None and options["scratch"] is None:
            beside = scratch_beside(out, keep_scratch=options["keep_scratch"])
            options["scratch"] = keep.enter_context(beside)
        with connected(options) as client:
            result = sweep_cohort(cohort, client=client, quiet=quiet, **options)
        if not quiet:
            say(summary(result))
        if out is not None:
            save(result, out, overwrite=overwrite, storage_options=storage_options)
            if not quiet:
                say_written(out)


def _selection(name: str, text: str) -> dict[str, list[str]]:
    """Read ``column:value``, values by ``|``."""
    column, found, values = text.partition(":")
    if not found or not values:
        raise click.UsageError(f"--test-rows {name}={text}: expected NAME=COLUMN:VALUE[|VALUE...]")
    return {column: values.split("|")}


def _schedule(
    text: str, cohort: Any, options: dict[str, Any], storage_options: dict[str, str]
) -> Any:
    """Read a schedule: a name, ``linear:SLIDES:SPLITS``, or a file."""
    if text.startswith("linear"):
        from croma_dask.cohort.manifest import read_columns
        from croma_dask.probe.linear import linear_schedule

        parts = text.split(":")[1:]
        if len(parts) != 2 or not all(part.isdecimal() for part in parts):
            raise click.UsageError(f"--schedule {text}: expected linear:SLIDES:SPLITS")
        if options["slide"] and options["rows_per_slide"] is None:
            raise click.UsageError("--schedule linear with --slide also needs --rows-per-slide")
        levels, classes = (
            options[order] or read_columns(cohort, [options[column]])[0].names
            for order, column in (("confounder_order", "confounder"), ("label_order", "label"))
        )
        return linear_schedule(
            len(levels), len(classes), int(parts[0]), int(parts[1]),
            rows_per_slide=options["rows_per_slide"] or 1,
        )  # fmt: skip
    if text.partition("?")[0].endswith(".json"):
        return _read_schedule(text, storage_options)
    return text


def _read_schedule(text: str, storage_options: dict[str, str]) -> Sequence[Any]:
    from croma_dask.cohort.location import Location
    from croma_dask.cohort.transfer import fetched
    from croma_dask.errors import SchemaError, StoreError

    place = Location.of(text, storage_options)
    path = str(place)
    try:
        with fetched(place) as local:
            found = json.loads(local.read_text())
    except StoreError:
        raise
    except (OSError, ValueError, RecursionError) as err:
        raise SchemaError(f"schedule {path!r} cannot be read: {err}") from err
    if not isinstance(found, list):
        raise SchemaError(f"schedule {path!r} is a JSON list of splits, found {type(found)}")
    return found
