"""How many requests it takes to open and to read what lies in an object store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import croma_dask as cd
from croma_dask.cohort.layout import build_columns
from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.text import as_frame
from croma_dask.cohort.uploads import upload
from croma_dask.cohort.writer import CohortWriter
from tests.objects.commands import run
from tests.objects.conftest import Bucket


def put_store(bucket: Bucket, folder: Path, n: int, chunk_rows: int | None = None) -> str:
    """Write a store of `n` rows and five columns here, and copy it there."""
    columns = build_columns(as_frame({
        "sample_id": np.arange(n), "label": np.arange(n) % 5, "center": np.arange(n) % 7,
        "group_id": np.arange(n) // 100, "scanner": np.arange(n) % 3,
    }))  # fmt: skip
    here = folder / "c.zarr"
    with CohortWriter(here, (n, 4), "f4", columns, chunk_rows=chunk_rows) as writer:
        for lo in range(0, n, 100_000):
            writer.write(np.ones((min(100_000, n - lo), 4), "f4"))
        writer.finish()
    upload(here, Location.of(bucket.url("c.zarr"), bucket.direct))
    return bucket.url("c.zarr")


def counted(bucket: Bucket, url: str) -> dict[str, Counter[str]]:
    """Requests of what a session begins with."""
    found = {}
    bucket.faults.clear()
    cohort = cd.open_cohort(url, storage_options=bucket.options)
    found["open_cohort"] = bucket.faults.counts()
    bucket.faults.clear()
    cohort.embedding[:4].variable.compute()
    found["first rows"] = bucket.faults.counts()
    bucket.faults.clear()
    StoredCohort(url, bucket.options).codes("label")
    found["labels"] = bucket.faults.counts()
    bucket.faults.clear()
    run(["info", url, "--json", *bucket.cli])
    found["croma-dask info"] = bucket.faults.counts()
    for request in bucket.faults.requests:
        print(request.verb, request.key)
    for name, counts in found.items():
        print(f"{name:16} {sum(counts.values()):3} {dict(counts)}")
    return found


def check(found: dict[str, Counter[str]]) -> None:
    """The numbers that docs/object-stores.md states."""
    assert found["open_cohort"] == Counter(GET=2)
    assert found["first rows"] == Counter(GET=1)
    assert found["labels"].total() <= 4
    assert set(found["labels"]) == {"GET"}


def test_store__opens_with_two_requests(bucket: Bucket, tmp_path: Path) -> None:
    check(counted(bucket, put_store(bucket, tmp_path, 400, 16)))  # 25 chunks


@pytest.mark.slow
def test_store_of_a_million_rows__opens_with_two_requests(bucket: Bucket, tmp_path: Path) -> None:
    found = counted(bucket, put_store(bucket, tmp_path, 1_000_000))
    check(found)
    assert found["croma-dask info"].total() <= 60
