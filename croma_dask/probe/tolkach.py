"""PathoROB's arrangement of the Tolkach cohort, where a case has slides of several classes.

A case must not be trained on and tested on at once, and one whose slides lie in several cells
could be if each cell were shuffled for itself. PathoROB lists, for every centre, which sets of
cases can be tested on together; each replicate draws one of them.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.cohort.location import Location
from croma_dask.cohort.readers.trust import LARGEST_EXPANSION, UNCHECKED_BYTES
from croma_dask.cohort.transfer import fetched
from croma_dask.errors import SchemaError, StoreError, name_items
from croma_dask.probe.schedule import as_count
from croma_dask.probe.slides import Slide, SlideArrangement, SlideCells

__all__ = ["tolkach_arrangement"]


def tolkach_arrangement(
    splits: Mapping[str, Any] | str | os.PathLike[str],
    case_of_row: Sequence[str],
    *,
    centers: Sequence[str],
    first_test_slide: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> SlideArrangement:
    """Arrangement that keeps the cases of a drawn test set at the end of every cell.

    In each replicate, before any shuffle, one feasible split is drawn for every centre, centres in
    order. Then each cell is shuffled, and the slides of the split's test cases move to its end,
    case by case in the order of their names.

    Parameters
    ----------
    splits
        PathoROB's feasible splits: ``{"train": {centre: [cases, ...]}, "test": {...}}`` with as
        many entries in both, or the path or URL of a file with them (.json or .json.gz).
    case_of_row
        (n_rows,) case of every row of the cohort. All rows of a slide are of one case, which
        holds where every cell has a multiple of `rows_per_slide` rows in order of cases.
    centers
        Names of the centres in `splits`, in the order of the confounder indices.
    first_test_slide
        Position from which on the slides of a cell are tested on: `max_train_slides` + 1 where
        `validation_fraction` is None, 7 for PathoROB's schedule. If given, every replicate is
        checked: a case with a slide from there on may have none further to the front, in any cell
        of its centre.
    storage_options
        Options of the fsspec file system of a URL.

    Returns
    -------
    SlideArrangement
        For ``arrange_slides=`` of the sweep. It raises SchemaError if a slide mixes cases, if the
        cells have another number of confounders than `centers`, or if a case would be trained on
        and tested on.

    Raises
    ------
    SchemaError
        `splits` is not of that form, lacks a centre, or names no case of the cohort.

    Notes
    -----
    PathoROB itself moves the test cases in the order of a Python set of texts, which differs from
    one process to the next unless PYTHONHASHSEED is fixed. Which cases are tested on is the same,
    but the order of their slides is not, and it carries over to later replicates: PathoROB's own
    runs are therefore not reproducible to the last digit, neither by itself nor here.
    """
    found = _read(splits, storage_options)
    cases = np.asarray(case_of_row, dtype=object)
    if cases.ndim != 1:
        raise SchemaError(f"case_of_row is one case a row, found an array of shape {cases.shape}")
    known = {str(case) for case in set(cases.tolist())}
    if isinstance(centers, str) or not len(centers):
        raise SchemaError(f"centers is a sequence of names, found {centers!r}")
    tests = []
    for center in centers:
        feasible = _feasible(found, center)
        named = {case for split in feasible for case in split}
        if not named & known:
            raise SchemaError(
                f"splits of {center!r} test on {name_items(sorted(named))}, none of which is in "
                f"case_of_row, which has {name_items(sorted(known))}"
            )
        tests.append(feasible)
    first = None
    if first_test_slide is not None:
        first = as_count(first_test_slide, "first_test_slide")
    return _Arrangement(tuple(map(str, centers)), tuple(tests), cases, first)


def _read(
    splits: Mapping[str, Any] | str | os.PathLike[str], storage_options: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Read the splits, from a file if need be."""
    if isinstance(splits, Mapping):
        return splits
    place = Location.of(splits, storage_options)
    try:
        with fetched(place) as path:
            raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = _unpacked(raw, str(place))
        read = json.loads(raw)
    except StoreError:
        raise
    except (OSError, ValueError, EOFError, RecursionError, zlib.error) as err:
        if isinstance(err, SchemaError):
            raise
        raise SchemaError(f"splits: cannot read {place} as JSON: {err}") from err
    if not isinstance(read, Mapping):
        raise SchemaError(f"splits: {place} holds a {type(read).__name__}, expected train and test")
    return read


def _unpacked(raw: bytes, name: str) -> bytes:
    """Unpack a gzip file that does not grow beyond what text does."""
    most = max(UNCHECKED_BYTES, LARGEST_EXPANSION * len(raw))
    with gzip.open(io.BytesIO(raw)) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise SchemaError(f"splits: {name} unpacks to more than {most:,} bytes: it is damaged")
    return found


def _feasible(splits: Mapping[str, Any], center: str) -> tuple[tuple[str, ...], ...]:
    """Test cases of every feasible split of a centre, each in the order of names."""
    sides = []
    for side in ("train", "test"):
        centers = splits.get(side)
        if not isinstance(centers, Mapping):
            raise SchemaError(f"splits must have a mapping {side!r}, found {name_items(splits)}")
        if center not in centers:
            raise SchemaError(
                f"splits[{side!r}] has no centre {center!r}; it has {name_items(centers)}"
            )
        sides.append([_cases(cases, side, center) for cases in _listed(centers[center], side)])
    train, test = sides
    if not test or len(train) != len(test):
        raise SchemaError(
            f"splits of {center!r}: {len(train)} sets of training cases and {len(test)} of test "
            "cases; expected as many, and one at least"
        )
    for number, (one, other) in enumerate(zip(train, test, strict=True)):
        both = sorted(one & other)
        if both:
            raise SchemaError(
                f"split {number} of {center!r} trains and tests on {name_items(both)}"
            )
    return tuple(tuple(sorted(cases)) for cases in test)


def _listed(splits: Any, side: str) -> Sequence[Any]:
    if isinstance(splits, str) or not isinstance(splits, Sequence):
        raise SchemaError(f"splits[{side!r}] holds {splits!r:.60} for a centre, expected a list")
    return splits


def _cases(cases: Any, side: str, center: str) -> set[str]:
    """Return the cases of one split of a centre, as text."""
    is_list = isinstance(cases, Sequence | set | frozenset) and not isinstance(cases, str)
    if not is_list or not all(isinstance(case, str | int) for case in cases):
        raise SchemaError(
            f"splits[{side!r}] of {center!r} holds {cases!r:.60}, expected a list of cases"
        )
    return set(map(str, cases))


@dataclass(frozen=True)
class _Arrangement:
    """See :func:`tolkach_arrangement`."""

    centers: tuple[str, ...]
    tests: tuple[tuple[tuple[str, ...], ...], ...]
    case_of_row: Any
    first_test_slide: int | None

    def __call__(self, cells: SlideCells, rng: random.Random) -> SlideCells:
        if len(cells) != len(self.centers):
            raise SchemaError(
                f"the cohort has {len(cells)} confounder levels, centers has {len(self.centers)} "
                f"({name_items(self.centers)}); expected one name a level"
            )
        drawn = [feasible[rng.randint(0, len(feasible) - 1)] for feasible in self.tests]
        arranged: list[list[list[Slide]]] = []
        for i, (level, test) in enumerate(zip(cells, drawn, strict=True)):
            arranged.append([])
            for j, given in enumerate(level):
                slides = list(given)
                rng.shuffle(slides)
                cases = [self._case(slide, i, j) for slide in slides]
                front = [s for s, case in zip(slides, cases, strict=True) if case not in test]
                back = [
                    s
                    for name in test
                    for s, case in zip(slides, cases, strict=True)
                    if case == name
                ]
                arranged[i].append(front + back)
            if self.first_test_slide is not None:
                self._check_apart(arranged[i], i, self.first_test_slide)
        return arranged

    def _case(self, slide: Slide, i: int, j: int) -> str:
        cases = {str(case) for case in self.case_of_row[np.asarray(slide)]}
        if len(cases) > 1:
            raise SchemaError(
                f"a slide of cell ({i}, {j}) holds rows of several cases, "
                f"{name_items(sorted(cases))} (rows {name_items(slide)}); order the rows of each "
                "cell by case, and let rows_per_slide divide the rows of every case"
            )
        return cases.pop()

    def _check_apart(self, level: Sequence[Sequence[Slide]], i: int, first: int) -> None:
        """Refuse a centre in which a case is tested on and not held out everywhere."""
        tested: dict[str, int] = {}
        for j, slides in enumerate(level):
            for slide in slides[first:]:
                tested.setdefault(self._case(slide, i, j), j)
        for j, slides in enumerate(level):
            for slide in slides[:first]:
                case = self._case(slide, i, j)
                if case in tested:
                    raise SchemaError(
                        f"centre {self.centers[i]!r}: case {case!r} would be tested on in cell "
                        f"({i}, {tested[case]}) and could be trained on in cell ({i}, {j}): from "
                        f"first_test_slide={first} on, every cell must hold the drawn test cases "
                        "and nothing else; use splits made for this cohort and schedule"
                    )
