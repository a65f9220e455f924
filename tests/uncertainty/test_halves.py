"""Half samples: the spread of halves that are scored by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import croma_dask as cd
from croma_dask.schema import METRICS
from croma_dask.schema_uncertainty import RESAMPLED, uncertainty_of
from croma_dask.uncertainty import half_samples
from croma_dask.uncertainty.compare import spread
from croma_dask.uncertainty.table import bootstrap_text

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*same embedding", "ignore:.*units", "ignore:only .* groups"
)
OPTIONS: dict[str, Any] = {"confounder": "center", "k_candidates": [5, 7], "m": [1, 2]}
N_GROUPS, N_PAIRS, SEED, LEVEL = 30, 3, 4, 0.9


def made_up(seed: int, n: int = 120) -> tuple[np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    group = np.arange(n) % N_GROUPS
    frame = pd.DataFrame(
        {"sample_id": np.arange(n).astype(str), "label": rng.integers(0, 2, n).astype(str),
         "center": (group % 2).astype(str), "group_id": [f"g{g:02d}" for g in group]}
    )  # fmt: skip
    return rng.normal(size=(n, 4)) + rng.normal(size=(N_GROUPS, 4))[group], frame


def spreads(
    x: np.ndarray, frame: pd.DataFrame, whole: Any, metric: str, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Deviations of the halves from their mean, (halves, m)."""
    found = []
    for at in range(N_PAIRS):
        order = np.random.default_rng([SEED, at]).permutation(N_GROUPS)
        for part in (order[: N_GROUPS // 2], order[N_GROUPS // 2 :]):
            mine = frame["group_id"].isin([f"g{g:02d}" for g in part]).to_numpy()
            tree = cd.score(x[mine], frame[mine].reset_index(drop=True), **OPTIONS)
            found.append(np.atleast_1d(tree[metric][name].values))
    values = np.array(found)
    return values - values.mean(axis=0), np.atleast_1d(whole[metric][name].values)


@pytest.mark.parametrize("metric", ["RI", "CRoMa"])
def test_half_samples__are_the_spread_of_halves(metric: str) -> None:
    x, frame = made_up(1)
    whole = cd.score(x, frame, **OPTIONS)
    found = half_samples(
        whole, x, frame, n_pairs=N_PAIRS, seed=SEED, level=LEVEL, keep_draws=True
    )[metric]  # fmt: skip
    for name in RESAMPLED[metric]:
        apart, value = spreads(x, frame, whole, metric, name)
        error = np.sqrt((apart**2).mean(axis=0))
        half = stats.t.ppf(0.5 + LEVEL / 2, N_PAIRS) * error
        # An interval ends where the range does.
        about = METRICS[metric][name]
        ends = np.clip([value - half, value + half], about.valid_min, about.valid_max)
        for suffix, expected in (("_std_error", error), ("_low", ends[0]), ("_high", ends[1])):
            np.testing.assert_allclose(
                np.atleast_1d(found[name + suffix]), expected, rtol=0, atol=1e-12
            )
        draws = found[f"{name}_draws"].values.reshape(apart.shape)
        np.testing.assert_allclose(draws, value + apart, rtol=0, atol=1e-12)


def test_half_samples__keep_a_pinned_tau() -> None:
    x, frame = made_up(3)
    whole = cd.score(x, frame, metrics="MaRI", tau=0.3, warn_tau=False, **OPTIONS)
    found = half_samples(whole, x, frame, n_pairs=2, keep_draws=True)
    again = half_samples(whole, x, frame, n_pairs=2, keep_draws=True, tau=0.3)
    other = half_samples(whole, x, frame, n_pairs=2, keep_draws=True, tau=0.1)
    draws = found["MaRI"].value_draws
    np.testing.assert_array_equal(draws, again["MaRI"].value_draws)
    assert (draws != other["MaRI"].value_draws).any()


def test_panel__compares_models_on_the_same_halves() -> None:
    (x, frame), y = made_up(1), made_up(1)[0] + 0.5 * made_up(2)[0]
    cohorts = {"a": x, "b": y, "again": x}
    panel = cd.score(cohorts, frame, **OPTIONS)
    found = half_samples(panel, cohorts, frame, n_pairs=N_PAIRS, seed=SEED, level=LEVEL)
    assert list(found.children) == ["RI", "MaRI", "CRoMa"]
    for metric, node in found.children.items():
        assert list(node.data_vars) == list(uncertainty_of(metric, compared=True))
        same = node.to_dataset().sel(model="a", other="again")
        for name in RESAMPLED[metric]:
            assert (same[f"{name}_better"] == 0.5).all()
            assert not same[f"{name}_difference_high"].values.any()
            a, value = spreads(x, frame, cd.score(x, frame, **OPTIONS), metric, name)
            b, other = spreads(y, frame, cd.score(y, frame, **OPTIONS), metric, name)
            error = np.sqrt(((a - b) ** 2).mean(axis=0))
            pair = node.to_dataset().sel(model="a", other="b")
            apart = value - other
            sign = -1 if name == "f0" else 1
            better = stats.t.cdf(sign * apart / error, N_PAIRS)
            np.testing.assert_allclose(np.atleast_1d(pair[f"{name}_better"]), better, atol=1e-9)
            low = apart - stats.t.ppf(0.5 + LEVEL / 2, N_PAIRS) * error
            np.testing.assert_allclose(
                np.atleast_1d(pair[f"{name}_difference_low"]), low, rtol=0, atol=1e-12
            )


def test_cohort__may_be_a_store_or_arrays(tmp_path: Path) -> None:
    x, frame = made_up(3)
    place = cd.write_cohort(tmp_path / "a.zarr", x, frame)
    whole = cd.score(place, confounder="center", metrics="CRoMa", alpha=0.2)
    found = half_samples(whole, place, n_pairs=2)["CRoMa"]
    assert found.attrs["alpha"] == 0.2
    assert found.attrs["metric"] == "bootstrap"
    assert found.attrs["neighbors"] == "of each half"
    assert found.attrs["n_draws"] == 4
    for other in ((x, frame), (cd.open_cohort(place),)):
        again = half_samples(whole, *other, n_pairs=2)["CRoMa"]
        assert float(again.value_low) == float(found.value_low)


def test_half_samples__are_wider_than_with_fixed_neighbours() -> None:
    x, frame = made_up(5)
    whole = cd.score(x, frame, **OPTIONS)
    wide, narrow = half_samples(whole, x, frame, n_pairs=4), cd.bootstrap(whole)
    for metric in ("RI", "MaRI"):
        assert float(wide[metric].value_std_error) > float(narrow[metric].value_std_error)


def test_paired_design__has_halves_too() -> None:
    x, frame = made_up(6, 240)
    frame["subset"] = (np.arange(240) // 120).astype(str)
    whole = cd.score(x, frame, design="paired_2x2", **OPTIONS)
    found = half_samples(whole, x, frame, n_pairs=2)
    assert float(found["CRoMa"].value_std_error[0]) > 0


def test_wrong_cohort__is_told() -> None:
    x, frame = made_up(1)
    whole = cd.score(x, frame, **OPTIONS)
    with pytest.raises(cd.SchemaError, match="has 100 rows and the result 120"):
        half_samples(whole, x[:100], frame[:100])
    with pytest.raises(cd.SchemaError, match="n_pairs must be a whole number from 2 on"):
        half_samples(whole, x, frame, n_pairs=1)
    panel = cd.combine_results({"a": whole, "b": cd.score(x + 1.0, frame, **OPTIONS)})
    with pytest.raises(cd.SchemaError, match=r"panel: give a mapping .*'a', 'b'"):
        half_samples(panel, x, frame)
    with pytest.raises(cd.SchemaError, match="no cohort of the model 'b'"):
        half_samples(panel, {"a": x}, frame)


def test_too_few_groups__are_told() -> None:
    x, frame = made_up(1)
    frame["group_id"] = (np.arange(120) % 4).astype(str)
    whole = cd.score(x, frame, **OPTIONS)
    with pytest.raises(cd.SupportError, match="half of the 4 groups cannot be scored"):
        half_samples(whole, x, frame)


@pytest.mark.parametrize("n_pairs", [2, 10])
def test_spread__of_halves_of_a_mean_covers_it(n_pairs: int) -> None:
    """Halves of one split mirror each other: a pair is one degree of freedom."""
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(3_000):
        values = rng.normal(size=100)
        halves = [values[rng.permutation(100)].reshape(2, 50).mean(axis=1) for _ in range(n_pairs)]
        draws = np.concatenate(halves)
        found = spread(np.array([[values.mean()]]), draws[:, None, None], 0.95)
        hits.append(float(found["_low"][0, 0]) <= 0.0 <= float(found["_high"][0, 0]))
    assert abs(np.mean(hits) - 0.95) < 0.012


def test_half_samples__say_what_they_are_and_stay_within_the_range() -> None:
    x, frame = made_up(3)
    # Labels far apart: the value lies near the end of its range, and the halves differ.
    far = x + 6.0 * (frame["label"].to_numpy() == "1")[:, None]
    whole = cd.score(far, frame, **OPTIONS)
    found = half_samples(whole, far, frame, n_pairs=2, seed=1)
    for metric, statistics in RESAMPLED.items():
        declared = uncertainty_of(metric, compared=False, halves=True)
        assert set(found[metric].data_vars) == set(declared)
        for name, about in declared.items():
            assert found[metric][name].attrs == about.attrs(), name
        for statistic in statistics:
            for end in ("_low", "_high"):
                about = declared[statistic + end]
                ends = found[metric][statistic + end].values
                assert (ends >= about.valid_min).all()
                assert (ends <= about.valid_max).all()
    assert float(found["RI"].value_high) == 1.0
    assert "Student" in found["RI"].value_low.attrs["comment"]
    assert bootstrap_text(found).startswith("4 halves of 30 groups")
