"""Which manifest row belongs to which embedding row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.cohort.rows import check_unique, composite_ids, plan_rows
from croma_dask.errors import SchemaError


def obj(values) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    out[:] = list(values)
    return out


@given(st.lists(st.text(max_size=3), min_size=1, max_size=12), st.randoms())
def test_plan__permuted_ids_meet(ids: list[str], random) -> None:
    ids = list(dict.fromkeys(f"{i}{text}" for i, text in enumerate(ids)))
    shuffled = ids[:]
    random.shuffle(shuffled)
    plan = plan_rows(len(ids), obj(ids), obj(shuffled))
    order = np.arange(len(ids)) if plan.order is None else plan.order
    assert [shuffled[row] for row in order] == ids
    assert plan.file_tile is None
    assert plan.sample_tile is None
    assert (plan.order is None) == (shuffled == ids)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.booleans(), st.randoms())
def test_plan__repeated_samples_meet_their_tile(
    occurrences: list[int], by_id: bool, random
) -> None:
    samples = [f"s{i}" for i in occurrences]
    if by_id:
        file = sorted(set(samples))
        random.shuffle(file)
        plan = plan_rows(len(file), obj(file), obj(samples))
        assert plan.n_tiles == len(file)
        tiles = file
    else:
        plan = plan_rows(len(samples), None, obj(samples))
        tiles = list(dict.fromkeys(samples))
        assert plan.n_tiles == len(tiles)
        if plan.file_tile is not None:
            assert [tiles[tile] for tile in plan.file_tile] == samples
    if plan.sample_tile is not None:
        assert [tiles[tile] for tile in plan.sample_tile] == samples
    else:
        assert len(set(samples)) == len(samples)


def test_plan__file_that_repeats_what_the_manifest_repeats():
    file = obj(["b", "a", "b"])
    plan = plan_rows(3, file, obj(["a", "b", "a"]))
    assert plan.n_tiles == 2
    assert plan.file_tile.tolist() == [0, 1, 0]
    assert plan.sample_tile.tolist() == [1, 0, 1]
    with pytest.raises(SchemaError, match="names rows twice: 'b' in rows 0, 2"):
        plan_rows(3, file, obj(["a", "b"]))


def test_plan__different_sets_name_both_sides():
    with pytest.raises(SchemaError) as info:
        plan_rows(9, obj("abcdefghi"), obj("ixy"))
    message = str(info.value)
    assert "embedding (9 rows) and manifest (3 rows)" in message
    assert "8 only in the embedding ('a', 'b', 'c', 'd', 'e' and 3 more)" in message
    assert "2 only in the manifest ('x', 'y')" in message


def test_plan__one_row_cannot_belong_to_two_images():
    with pytest.raises(SchemaError, match="several image paths for one sample id: 'a'"):
        plan_rows(2, obj("ab"), obj("aba"), obj("123"))
    plan = plan_rows(2, obj("ab"), obj("aba"), obj("121"))
    assert plan.sample_tile.tolist() == [0, 1, 0]


def test_plan__order_of_a_hash_does_not_matter():
    """Nothing iterates over a set: two processes with other hash seeds agree."""
    import subprocess
    import sys

    code = (
        "from tests.cohort.test_rows import obj; from croma_dask.cohort.rows import plan_rows;"
        "print(plan_rows(4, obj('dcba'), obj('abcdabcd')).sample_tile.tolist())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ".", "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {"[3, 2, 1, 0, 3, 2, 1, 0]\n"}


def test_unique__within_the_manifest_or_within_a_subset():
    assert not check_unique(obj("abc"), None, pd.DataFrame())
    assert check_unique(obj("aba"), obj("ppq"), pd.DataFrame())
    frame = pd.DataFrame({"sample_id": list("aba"), "label": list("uvw")})
    with pytest.raises(SchemaError, match="repeat: 'a' in rows 0, 2.*name the subset column"):
        check_unique(obj("aba"), None, frame)
    with pytest.raises(SchemaError, match="repeat within a subset: 'a' in rows 0, 2"):
        check_unique(obj("aba"), obj("ppp"), frame)


def test_unique__advice_is_what_helps():
    frame = pd.DataFrame(
        {"tile": list("aba"), "label": list("uvw"), "same": list("xyx"), "slide": list("123")}
    )

    def message(frame: pd.DataFrame, subset: np.ndarray | None = None) -> str:
        with pytest.raises(SchemaError) as info:
            check_unique(obj("aba"), subset, frame, ["tile"])
        return str(info.value)

    assert 'id_columns=["tile", "slide"]' in message(frame)
    assert "name the subset column" in message(frame)
    assert "subset column" not in message(frame, obj("ppp"))
    assert "id_columns" not in message(frame.drop(columns="slide"))
    assert "leave all but one of each out" in message(frame.drop(columns="slide"))
    gaps = message(frame.assign(slide=["1", "2", None]))
    assert "id_columns" not in gaps
    for exact in (frame.iloc[[0, 1, 0]], frame[["tile"]]):
        text = message(exact)
        assert "rows 0, 2 are equal in every other column of the manifest too" in text
        assert "leave all but one out, or an id is wrong" in text
        assert "id_columns" not in text
        assert "subset column" not in text


def test_composite__is_unambiguous_or_refused():
    assert composite_ids([obj(["a", "b"]), obj(["1", "2"])], ["x", "y"]).tolist() == ["a/1", "b/2"]
    with pytest.raises(SchemaError, match="id column 'y' is empty in row 1"):
        composite_ids([obj(["a", "b"]), obj(["1", ""])], ["x", "y"])
    with pytest.raises(SchemaError, match="both become 'a-1-2'"):
        composite_ids([obj(["a-1", "a"]), obj(["2", "1-2"])], ["x", "y"], "-")
