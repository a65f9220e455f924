"""A benchmark of files and folders: tables as they go, and from where an earlier run stopped."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from croma_dask.approximate import Approximation
from croma_dask.cohort.manifest import id_length
from croma_dask.embedding.evaluate import evaluate_embedding
from croma_dask.embedding.failures import failed_scores
from croma_dask.embedding.input_data import InputData, naming, open_input
from croma_dask.embedding.inputs import EmbeddingInput
from croma_dask.embedding.label import Evaluated, Texts
from croma_dask.embedding.outcome import BIO_METRICS, Scores
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import Rows, choose_rows, read_text
from croma_dask.embedding.sources import columns_of, key_of, rows_by_batch, sources_of
from croma_dask.embedding.table_files import Clustering, Outdir, write_combined
from croma_dask.embedding.table_record import read_sample, write_sample
from croma_dask.embedding.table_stale import drop_stale, read_all, read_sources
from croma_dask.embedding.tables import GROUPS, Group
from croma_dask.errors import CromaDaskError, MemoryLimitError, StoreError, warn
from croma_dask.options import Options

__all__ = ["run_inputs"]

log = logging.getLogger("croma_dask")

_GROUP_OF: dict[str, Group] = {
    **dict.fromkeys(("silhouette", "clisi", "knn_correct"), "bio_conservation"),
    **dict.fromkeys(("kbet", "bras", "ilisi", "cilisi"), "batch_mixing"),
}
"""Group of metrics that each value of a row belongs to."""


def run_inputs(
    inputs: Sequence[EmbeddingInput], request: Request, outdir: Outdir,
    options: Options, client: Any = None, *, key: str | None = None, force: bool = False,
    samples: bool = True, storage_options: Mapping[str, Any] | None = None,
    how: Approximation | None = None,
) -> Iterator[Evaluated]:  # fmt: skip
    """Score inputs one after the other, and write the tables of each when it is done.

    Parameters
    ----------
    inputs, request
        What to score, and for what; checked by
        :func:`croma_dask.embedding.input_checks.check_inputs`.
    outdir
        Folder of the tables, as :func:`croma_dask.embedding.table_files.check_outdir` returns it.
    options, client
        As of :func:`croma_dask.embedding_benchmark`.
    key
        Which array of an h5ad file is the embedding, as of
        :func:`croma_dask.embedding.input_data.opened_h5ad`.
    force
        Score again what an earlier run has left there.
    samples
        Whether what is yielded has the values and names of single rows; without them it is small.
    storage_options
        Options of the file system of URLs.
    how
        An approximate index for the lists of any label; None for exact ones. That of a file is
        built anew and goes with the run, that of a store lies beside it.

    Yields
    ------
    Evaluated
        Each input as it is done, with what was asked for, that of an earlier run among it. One that
        cannot be scored has the reason in each of its metrics. When all are done, the tables of
        each method are written, with all metrics that the record of an input holds of today's
        data.

    Raises
    ------
    MemoryLimitError
        The search of an input does not fit the allowed memory.
    StoreError, OSError, SchemaError
        Rows cannot be read. As where memory is too small, the tables of each method are written of
        the inputs before. (Where the run is interrupted they are not: an interrupted run is soon
        gone on with, and tables of some inputs look like those of all.)
    """
    # What the tables are made of: values of single rows would pile up.
    done: list[Scores] = []
    clustering = request.how.clustering

    def combine() -> None:
        for method in dict.fromkeys(scores.method for scores in done):
            of_method = [scores for scores in done if scores.method == method]
            write_combined(outdir, method, of_method, clustering=clustering)

    try:
        for one in inputs:
            recorded = read_sources(outdir, one.sample, one.method, clustering=clustering)
            with open_input(
                one, request, options, key=key, storage_options=storage_options,
                also=columns_of(recorded),
            ) as data:  # fmt: skip
                with naming(_name(one)):
                    sources = sources_of(data, request, how, recorded)
                    found = _InputRun(one, data, request, how, outdir, options, client, sources)(
                        force=force
                    )
                done.append(_of_tables(found.scores, outdir, clustering, sources))
                # The store of an h5ad file is gone when the next one comes.
                found = (
                    _in_memory(found) if samples else replace(found, scores=_small(found.scores))
                )
            yield found
    except Exception:
        # It is the first error that counts.
        with contextlib.suppress(OSError, CromaDaskError):
            combine()
        raise
    combine()


def _small(scores: Scores) -> Scores:
    return replace(scores, sample_values={}, predictions=None)


def _of_tables(
    scores: Scores, outdir: Outdir, clustering: Clustering,
    sources: Mapping[Group, Mapping[str, Any]],
) -> Scores:  # fmt: skip
    """Take what the combined tables say of an input: all that was ever found of this data."""
    keys = {group: key_of(sources[group]) if group in sources else "" for group in GROUPS}
    found = read_all(outdir, scores.dataset, scores.method, clustering=clustering, keys=keys)
    return replace(
        _small(scores), outcomes={**found.outcomes, **scores.outcomes},
        bio=scores.bio or found.bio, batch=scores.batch or found.batch,
    )  # fmt: skip


def _name(one: EmbeddingInput) -> str:
    return f"{one.sample} by {one.method}"


@dataclass(frozen=True)
class _InputRun:
    """One input, and all that its scores come from and go to."""

    one: EmbeddingInput
    data: InputData
    request: Request
    how: Approximation | None
    outdir: Outdir
    options: Options
    client: Any
    sources: Mapping[Group, Mapping[str, Any]]

    def __call__(self, *, force: bool) -> Evaluated:
        """Take what is there already, compute the rest, and write its tables."""
        one, data, request = self.one, self.data, self.request
        keys = {group: key_of(sources) for group, sources in self.sources.items()}
        clustering = request.how.clustering
        label = read_text(data.manifest, request.label)
        batch = None if request.batch is None else read_text(data.manifest, request.batch)
        self._drop_stale(keys)
        kept = None
        if not force:
            kept = read_sample(
                self.outdir, one.sample, one.method, clustering=clustering,
                metrics=request.metrics, keys=keys,
            )  # fmt: skip
        missing = tuple(m for m in request.metrics if kept is None or m not in kept.outcomes)
        if missing and rows_by_batch(request) and any(name in BIO_METRICS for name in missing):
            # Metrics of labels alone would not leave the rows without batch out.
            kept, missing = None, request.metrics
        if kept is not None:
            log.warning("%s: %s of an earlier run used again (--force scores them anew)",
                        _name(one),
                        "tables" if not missing else f"{', '.join(kept.outcomes)}")  # fmt: skip
        if kept is not None and not missing:
            scores = kept
        else:
            scores = self._evaluate(replace(request, metrics=missing))
            write_sample(
                self.outdir, scores, clustering=clustering, keys=keys, ids=data.sample_id,
                labels=label, groups_of=_GROUP_OF, sources=self.sources,
            )  # fmt: skip
            scores = scores if kept is None else _joined(kept, scores, request)
        length = id_length(data.manifest, "sample_id")
        return Evaluated(scores, data.n_rows, data.sample_id, label, batch, length)

    def _drop_stale(self, keys: Mapping[Group, str]) -> None:
        """Delete tables of metrics that are not asked for now, and are of what is no more."""
        one, request = self.one, self.request
        asked = {"bio_conservation": request.bio, "batch_mixing": request.mixing}
        stale = drop_stale(
            self.outdir, one.sample, one.method, clustering=request.how.clustering, keys=keys,
            groups=[group for group in GROUPS if not asked[group]],
        )  # fmt: skip
        if stale:
            log.warning(
                "%s: its %s tables were of other rows, columns or versions than today's: they are "
                "deleted, and the combined ones are without it; ask for these metrics to have them "
                "again",
                _name(one), stale[0],
            )  # fmt: skip

    def _evaluate(self, request: Request) -> Scores:
        """Score the input; one that is no embedding to be scored says so in every metric."""
        one, data = self.one, self.data
        rows = _choose_rows(one, data, request)
        try:
            return evaluate_embedding(
                data.embedding, rows, request, dataset=one.sample, method=one.method,
                options=self.options, client=self.client, how=self.how,
            )  # fmt: skip
        except (MemoryLimitError, StoreError):
            raise
        except CromaDaskError as err:
            return failed_scores(
                one.sample, one.method, data.embedding.n_features, rows, request, err
            )


def _choose_rows(one: EmbeddingInput, data: InputData, request: Request) -> Rows:
    """Choose the rows; what is said of them says of which input they are."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = choose_rows(
            data.manifest, request.label, request.batch, bio=request.bio, mixing=request.mixing,
            missing_batches=request.how.missing_batches, batch_max_cells=request.batch_max_cells,
        )  # fmt: skip
    for said in caught:
        warn(f"{_name(one)}: {said.message}", said.category)
    return rows


def _in_memory(found: Evaluated) -> Evaluated:
    """Read the names of the rows."""
    n = found.n_rows

    def held(texts: Texts) -> Texts:
        read = texts(0, n)
        return lambda lo, hi: read[lo:hi]

    batch = None if found.batch is None else held(found.batch)
    return replace(found, sample_id=held(found.sample_id), label=held(found.label), batch=batch)


def _joined(kept: Scores, found: Scores, request: Request) -> Scores:
    """Put the group of metrics that was kept and the one that was computed together."""
    outcomes = kept.outcomes | found.outcomes
    return Scores(
        found.dataset, found.method, {name: outcomes[name] for name in request.metrics},
        found.bio or kept.bio, found.batch or kept.batch,
        kept.sample_values | found.sample_values,
        kept.predictions if found.predictions is None else found.predictions,
        {**kept.attrs, **found.attrs},
    )  # fmt: skip
