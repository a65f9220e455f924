"""``croma-dask benchmark``: the embedding benchmark of files, folders and stores."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import click

from croma_dask.cli_options import (
    cluster_options,
    connected,
    say,
    say_written,
    scratch_options,
    silence_log,
    split_list,
    storage_option,
)

__all__ = ["benchmark"]

EXIT_FAILED = 5
"""A metric has failed; the tables say which, and why."""


@click.command(no_args_is_help=True)
@click.argument("paths", nargs=-1, metavar="PATHS...")
@click.option(
    "--embedding", "more", multiple=True, metavar="PATH", help="The same as PATHS; repeatable."
)
@click.option(
    "--output-dir", metavar="FOLDER", help="Folder or URL of the tables, under benchmark/."
)
@click.option("--label-key", default="cell_type", show_default=True, help="Column of the label.")
@click.option("--batch-key", help="Column of the batch. Without it: the metrics of labels alone.")
@click.option(
    "--clustering", type=click.Choice(["leiden", "kmeans"]), default="leiden", show_default=True,
    help="Clusters that are compared with the labels.",
)  # fmt: skip
@click.option(
    "--metric-set", type=click.Choice(["all", "bio", "batch"]),
    help="Default: all with --batch-key, bio without.",
)  # fmt: skip
@click.option(
    "--metrics", multiple=True, callback=split_list,
    help="Single metrics instead, by comma or repeated: ARI, ASW, BRAS, ...",
)  # fmt: skip
@click.option(
    "--batch-max-cells", type=click.IntRange(min=0), default=0, show_default=True,
    help="Draw a stratified sample of so many cells for the metrics of batches; 0: all cells.",
)  # fmt: skip
@click.option("--method", help="Name of the method. Default: the folder that holds the file.")
@click.option(
    "--key",
    help="Array of .h5ad files: X, or a key of obsm. Default: X, or of a file without X the only"
    " entry of obsm.",
)
@click.option(
    "--gc-components", type=click.Choice(["strong", "weak"]), default="strong", show_default=True,
    help="Whether GC follows the edges of its graph one way, or both.",
)  # fmt: skip
@click.option(
    "--asw", type=click.Choice(["exact", "interval"]), default="exact", show_default=True,
    help="interval: certified bounds, without comparing all pairs of cells.",
)  # fmt: skip
@click.option(
    "--missing-batches", type=click.Choice(["batch_metrics", "all_metrics"]),
    default="batch_metrics", show_default=True, help="What cells without batch are left out of.",
)  # fmt: skip
@click.option(
    "--lisi-compat", type=click.Choice(["scib-metrics"]),
    help="LISI of -1 where that library has it.",
)  # fmt: skip
@click.option(
    "--index", type=click.Choice(["exact", "ivf", "pynndescent", "auto"]), default="exact",
    show_default=True,
    help="Search for the neighbours of any label through an approximate index; notes tell its"
    " recall. That of a file is built anew each time, that of a store beside it and kept.",
)  # fmt: skip
@click.option(
    "--recall", type=float, default=0.98, show_default=True,
    help="Share of a sample's neighbours that an approximate search has to reach.",
)  # fmt: skip
@click.option(
    "--calibration", type=int, default=1000, show_default=True,
    help="Cells that an approximate search looks up exactly as well.",
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
@click.option(
    "--plan",
    "only_plan",
    is_flag=True,
    help="Tell what it will cost with --index exact, and run nothing.",
)
@click.option("--out", metavar="PATH", help="The labelled result, too: .zarr, .nc, .csv or .json.")
@click.option("--overwrite", is_flag=True, help="Replace a result of --out that is there.")
@click.option("--force", is_flag=True, help="Score again what an earlier run has finished.")
@scratch_options
@click.option("-q", "--quiet", is_flag=True, help="No progress, no table.")
def benchmark(
    paths: tuple[str, ...], more: tuple[str, ...], output_dir: str | None, label_key: str,
    batch_key: str | None, clustering: str, metric_set: str | None, metrics: tuple[str, ...],
    batch_max_cells: int, method: str | None, key: str | None, index: str, recall: float,
    calibration: int, only_plan: bool, out: str | None, overwrite: bool, force: bool, quiet: bool,
    storage_options: dict[str, str], **options: Any,
) -> None:  # fmt: skip
    """Score embeddings of single cells by up to thirteen metrics, each with its table.

    PATHS are .h5ad files, cohort stores, folders of these, or patterns, or their URLs. A file is
    one embedding: its name says of what, its folder by which method. A run that was interrupted
    goes on with the embedding it was at when it is started again; finished ones are not scored
    again.

    Exit codes: 0 done; 2 bad input or usage; 3 does not fit the allowed memory; 5 done, but a
    metric has failed (its note says why); 130 interrupted.

    \b
    croma-dask benchmark embeddings/scvi --batch-key donor --output-dir results
    croma-dask benchmark atlas.zarr --label-key cell_type --batch-key donor --output-dir results
    croma-dask rank results/benchmark/*_wide.csv
    """
    from croma_dask.embedding.benchmark import result_attrs
    from croma_dask.embedding.failures import told_failures
    from croma_dask.embedding.input_checks import check_inputs
    from croma_dask.embedding.inputs import expand_paths
    from croma_dask.embedding.label import label_scores
    from croma_dask.embedding.plan import plan_inputs
    from croma_dask.embedding.request import Request
    from croma_dask.embedding.run import run_inputs
    from croma_dask.embedding.summary import benchmark_summary
    from croma_dask.embedding.table_files import Places, check_outdir
    from croma_dask.memory import allowed_bytes
    from croma_dask.options import merged
    from croma_dask.results import check_target, save
    from croma_dask.resume import scratch_beside
    from croma_dask.robustness.arguments import check_index

    if metric_set and metrics:
        raise click.UsageError("--metric-set and --metrics exclude each other")
    if output_dir is None and not only_plan:
        raise click.UsageError("name the folder of the tables with --output-dir")
    allowed_bytes(options["memory"])
    how = check_index(
        index, recall=recall, probes=None, calibration=calibration, seed=0, start_k=200,
        k_growth_factor=2.0,
    )  # fmt: skip
    if out is not None and not only_plan:
        check_target(out, overwrite=overwrite, storage_options=storage_options)
    readings = {
        "clustering": clustering,
        **{name: options.pop(name)
           for name in ("gc_components", "asw", "missing_batches", "lisi_compat")},
    }  # fmt: skip
    request = Request.of(
        list(metrics) or metric_set, label_key, batch_key, "sample_id", batch_max_cells, **readings
    )
    inputs = expand_paths([*paths, *more], method=method, storage_options=storage_options)
    if key is not None and not any(one.is_h5ad for one in inputs):
        raise click.UsageError("--key is for .h5ad files: a store holds one embedding")
    if quiet:
        silence_log()
    check_inputs(inputs, request, key=key, storage_options=storage_options)
    with contextlib.ExitStack() as keep:
        if not only_plan:
            assert output_dir is not None
            outdir = check_outdir(output_dir, storage_options=storage_options)
            tables = Places(outdir, request.how.clustering).root
            if options["scratch"] is None:
                beside = scratch_beside(str(tables), keep_scratch=options["keep_scratch"])
                options["scratch"] = keep.enter_context(beside)
        client = keep.enter_context(connected(options))
        settings = merged(quiet=quiet, **options)
        if only_plan:
            plan = plan_inputs(
                inputs, request, settings, client, key=key, storage_options=storage_options
            )
            say(str(plan))
            return
        found = []
        for one in run_inputs(
            inputs, request, outdir, settings, client, key=key, force=force,
            samples=out is not None, storage_options=storage_options, how=how,
        ):  # fmt: skip
            found.append(one)
            if not quiet:
                say(benchmark_summary(one.scores))
    if out is not None:
        save(
            label_scores(found, result_attrs(request, how)), out, overwrite=overwrite,
            storage_options=storage_options,
        )  # fmt: skip
        if not quiet:
            say_written(out)
    if not quiet:
        say(f"\ntables: {tables}")
    failed = {
        f"{one.scores.dataset} by {one.scores.method}": told_failures(one.scores) for one in found
    }
    for name, told in failed.items():
        if told:
            say(f"error: {name}: failed {told}", err=True)
    if any(failed.values()):
        sys.exit(EXIT_FAILED)
