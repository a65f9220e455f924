"""The command ``croma-dask bootstrap``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from croma_dask.cli_options import say, say_written, storage_option, tell_leaning

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
@click.option(
    "--half-samples", "cohorts", multiple=True, metavar="COHORT",
    help="Score random halves of the groups of this cohort, in place of draws; once for each "
    "model, in their order.",
)  # fmt: skip
@click.option(
    "--pairs", type=click.IntRange(min=2), default=10, show_default=True,
    help="Of --half-samples: random splits; each gives two halves.",
)  # fmt: skip
@click.option("--index", help="Of --half-samples: as of score. Default: exact.")
@click.option("--sample-id", help="Of --half-samples: column of the ids. Default: sample_id.")
@click.option("--subset", help="Of --half-samples: column of the subsets. Default: subset.")
@click.option("--memory", metavar="SIZE", help="Of --half-samples: as of score, e.g. 4GB.")
@storage_option
@click.option("--threads", type=click.IntRange(min=1), help="Default: all cores.")
@click.option("--out", metavar="PATH", help="Where it goes: .zarr, .nc, .csv or .json.")
@click.option("--overwrite", is_flag=True, help="Replace a result that is there.")
@click.option("-q", "--quiet", is_flag=True, help="No table.")
def bootstrap(
    results: tuple[str, ...], names: tuple[str, ...], draws: int, seed: int, level: float,
    cohorts: tuple[str, ...], pairs: int, threads: int | None, out: str | None, overwrite: bool,
    quiet: bool, storage_options: dict[str, str], **scoring: str | None,
) -> None:  # fmt: skip
    """Tell how sure results are: intervals, differences between models, and ranks.

    Groups of rows (slides, patients) are drawn again, with replacement, and every statistic is
    taken of the rows of the drawn groups: the same groups for all models.

    RESULT is what score has written as .zarr or .nc. Several results of one model each are compared
    as a panel, which has to be of the same rows; so are the models of a panel.

    Neighbours stay what they are in the result. With --half-samples they do not: random halves of
    the groups are scored by themselves, which takes about --pairs / 2 times as long as the score,
    and holds for cohorts to come.

    \b
    croma-dask bootstrap result.zarr
    croma-dask bootstrap uni.zarr virchow.zarr --draws 5000 --out sure.zarr
    croma-dask bootstrap result.zarr --half-samples cohort.zarr --pairs 10
    """
    from croma_dask.panel.combine import combine_results
    from croma_dask.panel.names import result_names
    from croma_dask.results import check_target, open_result, save
    from croma_dask.uncertainty.run import bootstrap as run
    from croma_dask.uncertainty.table import bootstrap_text

    _check_options(halves=bool(cohorts))
    if out is not None:
        check_target(out, overwrite=overwrite, storage_options=storage_options)
    called = result_names(results, names)
    opened = [open_result(place, storage_options=storage_options) for place in results]
    try:
        several = len(opened) > 1 or bool(names)
        whole = combine_results(dict(zip(called, opened, strict=True))) if several else opened[0]
        if cohorts:
            given = {name: value for name, value in scoring.items() if value is not None}
            found = _halves(
                whole, cohorts, storage_options, n_pairs=pairs, seed=seed, level=level,
                threads=threads, quiet=True, **given,
            )  # fmt: skip
        else:
            found = run(whole, n_draws=draws, seed=seed, level=level, threads=threads)
        if not quiet:
            say(bootstrap_text(found))
            tell_leaning(whole)
    finally:
        for result in opened:
            result.close()
    if out is not None:
        save(found, out, overwrite=overwrite, storage_options=storage_options)
        if not quiet:
            say_written(out)


def _check_options(*, halves: bool) -> None:
    """Refuse what would be ignored: options of half samples without them, and of draws with."""
    context = click.get_current_context()
    of_halves = {
        "pairs": "--pairs", "index": "--index", "sample_id": "--sample-id", "subset": "--subset",
        "memory": "--memory",
    }  # fmt: skip
    for name, option in ({"draws": "--draws"} if halves else of_halves).items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--draws is of the bootstrap; half samples have --pairs"
                if halves
                else f"{option} is an option of --half-samples COHORT: give that, or leave it out"
            )


def _halves(
    whole: Any, cohorts: Sequence[str], storage_options: dict[str, str], **options: Any
) -> Any:  # fmt: skip
    """Score halves of the cohorts, which are in the order of the models."""
    from croma_dask.cohort.open import open_cohort
    from croma_dask.panel.models import names_of
    from croma_dask.uncertainty.halves import half_samples

    names = names_of(whole)
    n_models = max(1, len(names))
    if len(cohorts) != n_models:
        models = f"{n_models} models ({', '.join(names)})" if names else "one model"
        raise click.UsageError(
            f"--half-samples is given {len(cohorts)} times for {models}; give it once for each, in "
            "their order"
        )
    opened = [open_cohort(cohort, storage_options=storage_options) for cohort in cohorts]
    return half_samples(
        whole, dict(zip(names, opened, strict=True)) if names else opened[0], **options
    )  # fmt: skip
