"""Every example in a docstring runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import warnings
from pathlib import Path

import pytest

import croma_dask as cd

MODULES = sorted(m.name for m in pkgutil.walk_packages(cd.__path__, "croma_dask."))


@pytest.mark.parametrize("name", MODULES)
def test_examples__give_what_they_say(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(name)
    public = {n: getattr(cd, n) for n in ("ingest", "open_cohort", "score", "write_cohort")}
    examples = [t for t in doctest.DocTestFinder().find(module) if t.examples]
    runner = doctest.DocTestRunner()
    with warnings.catch_warnings():
        # An example shows how a thing is used; support below 1 is not what it is about.
        warnings.simplefilter("ignore", cd.SupportWarning)
        for number, test in enumerate(examples):
            folder = tmp_path / str(number)
            folder.mkdir()
            test.globs.update(public, tmp_path=folder)
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
