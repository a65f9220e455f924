"""Pages are run in a folder of their own, by the program in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import croma_dask as cd
from croma_dask.cli import main


@pytest.fixture
def run() -> Callable[..., Result]:
    """Call the command in this process."""

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    return invoke


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty folder; pages tell of low support in words, and figures draw no window."""
    import matplotlib as mpl

    monkeypatch.chdir(tmp_path)
    with (
        mpl.rc_context({"backend": "agg"}),
        cd.set_options(quiet=True),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", cd.SupportWarning)
        yield tmp_path
