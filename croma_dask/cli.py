"""The command ``croma-dask``: it parses, forwards and prints, and computes nothing itself."""

from __future__ import annotations

import errno
import json
import logging
import sys
import warnings
from typing import Any, NoReturn, TextIO

import click

from croma_dask.cli_benchmark import benchmark
from croma_dask.cli_bootstrap import bootstrap
from croma_dask.cli_breakdown import breakdown, explain
from croma_dask.cli_index import index
from croma_dask.cli_options import say, split_list, storage_option
from croma_dask.cli_probe import probe
from croma_dask.cli_rank import rank
from croma_dask.cli_report import report
from croma_dask.cli_score import plan, score
from croma_dask.errors import CromaDaskError, MemoryLimitError, SupportError
from croma_dask.outward import named, visible

__all__ = ["main"]

EXIT_INPUT = 2
EXIT_MEMORY = 3
EXIT_SUPPORT = 4
EXIT_INTERRUPTED = 130

_A_DISK = "the disk of the output, of scratch (--scratch) or of temporary files (TMPDIR)"

RESUMED = ("ingest", "score", "probe", "index", "benchmark")
"""Commands that go on with what an interrupted run has left."""


class CromaGroup(click.Group):
    """Turn the library's exceptions into one line and an exit code.

    2: bad input or usage; 3: it would not fit the allowed memory; 4: nothing to score; 130:
    interrupted; 1, with a traceback: a bug.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except MemoryLimitError as err:
            _fail(err, EXIT_MEMORY)
        except SupportError as err:
            _fail(err, EXIT_SUPPORT)
        except (CromaDaskError, OSError) as err:
            if isinstance(err, OSError) and err.errno == errno.ENOSPC:
                where = f"the disk of {err.filename}" if err.filename else _A_DISK
                _fail(f"{where} is full: make room, or name another place", EXIT_INPUT)
            _fail(err, EXIT_INPUT)
        except KeyboardInterrupt:
            again = ": start the same command again to go on" * (ctx.invoked_subcommand in RESUMED)
            _fail(f"interrupted{again}", EXIT_INTERRUPTED)


def _fail(message: object, code: int) -> NoReturn:
    say(f"error: {message}", err=True)
    sys.exit(code)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    say(f"warning: {message}", err=True)


def _show_record(record: logging.LogRecord) -> bool:
    """Make a record of the log one that says what it says, and does nothing to a terminal."""
    record.msg, record.args = visible(record.getMessage(), keep="\n\t"), None
    return True


@click.group(cls=CromaGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="croma-dask")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Robustness metrics of embeddings (RI, MaRI, CRoMa) on cohorts of any size.

    \b
    croma-dask ingest features.npy manifest.csv cohort.zarr
    croma-dask score cohort.zarr --confounder center --out result.zarr
    croma-dask report result.zarr --out report.html
    croma-dask probe cohort.zarr --confounder center --schedule camelyon --rows-per-slide 300
    croma-dask index cohort.zarr --kind ivf    # from some 300,000 rows on: score --index auto
    """
    shown = warnings.showwarning
    ctx.call_on_close(lambda: setattr(warnings, "showwarning", shown))
    warnings.showwarning = _show_warning
    log = logging.getLogger("croma_dask")
    ctx.call_on_close(lambda: log.removeFilter(_show_record))
    log.addFilter(_show_record)


@main.command()
@click.argument("paths", nargs=-1, required=True, metavar="FEATURES [MANIFEST] OUT")
@click.option("--key", help="Which array: obsm key or X, npz member, HDF5 dataset, list column.")
@click.option("--label", default="label", show_default=True, help="Column of the label.")
@click.option(
    "--group",
    default="group_id",
    show_default=True,
    help="Column of the group (slide, patient); sample_id: every sample is its own.",
)
@click.option("--sample-id", default="sample_id", show_default=True, help="Column of the ids.")
@click.option("--subset", default="subset", show_default=True, help="Column of the 2x2 subset.")
@click.option(
    "--image-path", default="image_path", show_default=True, help="Column of the image's path."
)
@click.option(
    "--id-columns",
    multiple=True,
    callback=split_list,
    help="Columns that name a sample together, by comma or repeated.",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16", "float32", "float64"]),
    help="bfloat16: what two-byte void values are. Others: cast. Default: as it is.",
)
@click.option("--comment", help="Lines before the manifest's header that start with this.")
@click.option("--chunk-rows", type=click.IntRange(min=1), help="Rows of a chunk.")
@click.option("--overwrite", is_flag=True, help="Replace a cohort store that is there.")
@click.option(
    "--resume/--no-resume", default=True, show_default=True, help="Go on with an unfinished store."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, no last line.")
@storage_option
def ingest(paths: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Turn embeddings and a manifest into a cohort store, streamed.

    FEATURES is a .npy, .npz, .h5ad, .parquet or .h5 file, a Zarr array, or a folder of one .h5,
    .npy or .npz file a slide. MANIFEST is a CSV, TSV, parquet or h5ad file with one row a sample;
    it may be left out where FEATURES carries columns (h5ad, parquet, a folder). OUT is a path or
    URL. An ingest that was interrupted goes on where it stopped when it is started again.

    \b
    croma-dask ingest features.npy manifest.csv cohort.zarr --label diagnosis --group slide_id
    croma-dask ingest atlas.h5ad atlas.zarr --key X_scvi --label cell_type --group donor
    """
    from croma_dask.cohort.ingestion import ingest as run
    from croma_dask.cohort.remarks import absent_roles
    from croma_dask.cohort.store import StoredCohort

    if len(paths) not in (2, 3):
        raise click.UsageError(
            f"expected FEATURES [MANIFEST] OUT, that is two or three paths; got {len(paths)}"
        )
    manifest = paths[1] if len(paths) == 3 else None
    options["id_columns"] = options["id_columns"] or None
    place = run(paths[0], manifest, paths[-1], progress=not quiet, **options)
    if not quiet:
        store = StoredCohort(place, options["storage_options"])
        source = json.loads(str(store.attrs["source"]))
        if source.get("rows") == "by position":
            say(f"rows matched by position ({source.get('features')} carries no ids)")
        say(
            f"{paths[-1]}: {store.n_samples:,} samples x {store.n_features:,} features "
            f"({store.dtype}), columns {named(store.columns)}"
        )
        if absent := absent_roles(store.columns):
            say(f"note: {absent}", err=True)


@main.command()
@click.argument("store")
@click.option("--verify", is_flag=True, help="Read everything and compare with the fingerprints.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@storage_option
def info(store: str, verify: bool, as_json: bool, storage_options: dict[str, str]) -> None:
    """Say what is in a cohort store: rows, columns, fingerprints, label x confounder counts.

    \b
    croma-dask info cohort.zarr
    """
    from croma_dask.cohort.store import StoredCohort
    from croma_dask.cohort.summary import describe, describe_text

    cohort = StoredCohort(store, storage_options)
    if verify:
        cohort.verify()
    if as_json:
        say(json.dumps(describe(cohort), ensure_ascii=False, indent=2))
    else:
        say(describe_text(cohort))
        if verify:
            say("\nverified: rows and columns are those that were written")


main.add_command(benchmark)
main.add_command(bootstrap)
main.add_command(breakdown)
main.add_command(explain)
main.add_command(index)
main.add_command(plan)
main.add_command(probe)
main.add_command(rank)
main.add_command(report)
main.add_command(score)


if __name__ == "__main__":
    main()
