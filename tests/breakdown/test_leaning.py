"""Values that rest on one group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.breakdown.leaning import leaning_groups

pytestmark = pytest.mark.filterwarnings("ignore")


def cohort(*, bad: bool, n_groups: int = 24, rows: int = 10) -> tuple[np.ndarray, pd.DataFrame]:
    """Labels far apart, centres less; of the bad cohort one slide lies with another label."""
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(n_groups), rows)
    label = rng.integers(0, 3, group.size)
    centre = group % 2
    x = rng.normal(size=(group.size, 8))
    x[:, :3] += 6.0 * np.eye(3)[label]
    # Nearly all neighbours are of the own label and centre, and say nothing.
    x[:, 4] += 5.0 * centre
    if bad:
        # Rows of slide 7 lie far from their labels, in the place of another label of its centre.
        mine = group == 7
        x[mine, :3] += 6.0 * (np.eye(3)[(label[mine] + 1) % 3] - np.eye(3)[label[mine]])
    frame = pd.DataFrame(
        {"sample_id": np.arange(group.size), "label": label, "center": centre, "group_id": group}
    )
    return x, frame


def scored(*, bad: bool, **how: Any) -> xr.DataTree:
    x, frame = cohort(bad=bad, **how)
    return cd.score(x, frame, confounder="center", k_candidates=[5], m=[2, 3])


def test_leaning_groups__of_alike_groups_there_are_none() -> None:
    assert leaning_groups(scored(bad=False)) == []


def test_leaning_groups__finds_the_slide_and_what_is_without_it() -> None:
    result = scored(bad=True)
    found = {(one.metric, one.m): one for one in leaning_groups(result, "uni")}
    assert {one.group for one in found.values()} == {"7"}
    assert {one.model for one in found.values()} == {"uni"}
    one = found["RI", None]
    index = result["RI"].to_dataset()
    rest = (index["group_id"] != "7").values
    so, os = index["so_evidence"].values, index["os_evidence"].values
    assert one.value == pytest.approx(float(index["value"]), abs=1e-12)
    assert one.without == pytest.approx(so[rest].sum() / (so + os)[rest].sum(), abs=1e-12)
    assert one.part_of == "OS evidence"
    assert one.part == pytest.approx(os[~rest].sum() / os.sum(), abs=1e-12)
    assert one.share == pytest.approx(1 / 24)
    for m in (2, 3):
        one, margin = found["CRoMa", m], result["CRoMa"].to_dataset().sel(m=m)
        values = margin["sample_values"].values
        left = values[rest]
        tail = left[left <= np.quantile(left, 0.1)].mean()
        assert one.without == pytest.approx(tail, abs=1e-12)
        inside = values <= float(margin["q_alpha"])
        assert one.part == pytest.approx(inside[~rest].sum() / inside.sum())
    assert "'7', 4.2% of the samples, brings" in str(one)


def test_leaning_groups__of_a_panel_name_the_model() -> None:
    (x, frame), (y, _) = cohort(bad=False), cohort(bad=True)
    panel = cd.score({"good": x, "bad": y}, frame, confounder="center", k_candidates=[5])
    assert {one.model for one in leaning_groups(panel)} == {"bad"}


def test_leaning_groups__says_nothing_of_few_groups() -> None:
    x, frame = cohort(bad=True)
    frame["group_id"] = np.where(frame["group_id"] == 7, 1, 2 + frame["group_id"] % 3)
    assert leaning_groups(cd.score(x, frame, confounder="center", k_candidates=[5])) == []


def test_leaning_groups__all_evidence_in_one_group() -> None:
    result = scored(bad=True)
    index = result["RI"].to_dataset()
    only = (index["group_id"] == "7").values
    index["so_evidence"] = index["so_evidence"].where(only, 0.0)
    index["os_evidence"] = index["os_evidence"].where(only, 0.0)
    (one,) = leaning_groups(index)
    assert np.isnan(one.without)
    assert "without it nothing is left" in str(one)
