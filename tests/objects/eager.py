"""Requests that fail are tried again at once, and by this library alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croma_dask.cohort import retrying
from tests.objects.conftest import Bucket


def eager(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return a bucket at which botocore tries nothing again, and this library without a pause."""
    monkeypatch.setattr(retrying, "WAIT", 0.01)
    never = {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
    return replace(bucket, options={**bucket.options, **never})
