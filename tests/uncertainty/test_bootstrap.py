"""The cluster bootstrap: equal to putting rows together, whatever the shape of the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.results import save
from croma_dask.schema_uncertainty import RESAMPLED, uncertainty_of
from croma_dask.uncertainty import draws as draws_module
from croma_dask.uncertainty.statistics import draw_margin
from tests.helpers import resampling as direct
from tests.helpers.cohorts import Cohort, lattice_cohort, random_cohort
from tests.helpers.marks import first

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*units",
    "ignore:.*subsets",
    "ignore:only .* groups",
    "ignore:.*same embedding",
    "ignore:.*rows are zero",
)
N_DRAWS, SEED, LEVEL = 60, 5, 0.9
ENDS = ("low", "high")


def scored(cohort: Cohort, **options: Any) -> xr.DataTree:
    arguments = {"k_candidates": [3, 7], "m": [1, 3]} | options
    return cd.score(cohort.x, cohort.frame, confounder="center", design=cohort.design, **arguments)


def drawn(result: Any, **options: Any) -> xr.DataTree:
    arguments = {"n_draws": N_DRAWS, "seed": SEED, "level": LEVEL, "keep_draws": True} | options
    return cd.bootstrap(result, **arguments)


def panel_of(cohort: Cohort, rng: np.random.Generator, **options: Any) -> xr.DataTree:
    """Three models, of which the last is the first one again."""
    noisy = Cohort(cohort.x + rng.integers(-2, 3, cohort.x.shape), cohort.frame, cohort.design)
    first, second = scored(cohort, **options), scored(noisy, **options)
    return cd.combine_results({"first": first, "second/b": second, "again": first})


def every(node: xr.Dataset) -> Any:
    """Every model and radius of a node by itself."""
    for at in np.ndindex(node.sizes.get("model", 1), node.sizes.get("m", 1)):
        picked = {d: i for d, i in zip(("model", "m"), at, strict=True) if d in node.dims}
        yield picked, node.isel(picked)


@pytest.fixture
def ties(rng: np.random.Generator) -> Cohort:
    """Equal margins, margins of exactly 0, undefined rows, a group without any defined one."""
    return lattice_cohort(rng, 110, n_features=3, reach=2, n_groups=24)


@pytest.fixture
def paired(rng: np.random.Generator) -> Cohort:
    return lattice_cohort(rng, 100, n_features=4, reach=5, n_groups=14, n_subsets=4)


@pytest.mark.parametrize("kind", ["ties", "paired", "seed 0", "seed 1", "seed 2"])
def test_bootstrap__equals_putting_rows_together(kind: str, request: pytest.FixtureRequest) -> None:
    cohort = (
        random_cohort(int(kind[-1]), least=100, most=160)
        if kind.startswith("seed")
        else request.getfixturevalue(kind)
    )
    result = scored(cohort)
    found = drawn(result)
    assert list(found.children) == ["RI", "MaRI", "CRoMa"]
    for metric, node in result.children.items():
        for picked, one in every(node.to_dataset()):
            expected = direct.statistics(one, N_DRAWS, SEED)
            mine = found[metric].to_dataset().isel(picked)
            for name in RESAMPLED[metric]:
                _check(mine, name, one[name].item(), expected[name])


def _check(found: xr.Dataset, name: str, value: float, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found[f"{name}_draws"], expected, rtol=0, atol=1e-12)
    low, high = direct.interval(expected, LEVEL)
    assert found[name].item() == value
    assert found[f"{name}_low"].item() == pytest.approx(low, abs=1e-12, nan_ok=True)
    assert found[f"{name}_high"].item() == pytest.approx(high, abs=1e-12, nan_ok=True)
    spread = np.std(expected[~np.isnan(expected)], ddof=1)
    assert found[f"{name}_std_error"].item() == pytest.approx(spread, abs=1e-12, nan_ok=True)
    assert found[f"{name}_empty_draws"].item() == np.isnan(expected).sum()


@pytest.mark.parametrize("kind", ["ties", "paired"])
def test_panel__is_compared_within_the_same_draws(
    kind: str, rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    panel = panel_of(request.getfixturevalue(kind), rng)
    found = drawn(panel)
    for metric, node in panel.children.items():
        for radius in range(node.sizes.get("m", 1)):
            by = {"m": radius} if "m" in node.dims else {}
            mine, theirs = found[metric].to_dataset().isel(by), node.to_dataset().isel(by)
            models = [theirs.isel(model=i) for i in range(3)]
            expected = [direct.statistics(one, N_DRAWS, SEED) for one in models]
            for name in RESAMPLED[metric]:
                values = [one[name].item() for one in models]
                for i, value in enumerate(values):
                    _check(mine.isel(model=i), name, value, expected[i][name])
                _check_pairs(mine, name, values, np.array([e[name] for e in expected]))


def _check_pairs(
    found: xr.Dataset, name: str, values: list[float], draws: np.ndarray
) -> None:  # fmt: skip
    for a, b in np.ndindex(3, 3):
        one, apart = found.isel(model=a, other=b), draws[a] - draws[b]
        assert one[f"{name}_difference"].item() == values[a] - values[b]
        for end, expected in zip(ENDS, direct.interval(apart, LEVEL), strict=True):
            assert one[f"{name}_difference_{end}"].item() == pytest.approx(expected, abs=1e-12)
        wins = [0.5 if d == 0 else float((d < 0) == (name == "f0")) for d in apart]
        assert one[f"{name}_better"].item() == pytest.approx(np.mean(wins), abs=1e-12)
    higher = name != "f0"
    assert found[f"{name}_rank"].values.tolist() == direct.ranks(values, higher=higher)
    each = np.array([direct.ranks(column.tolist(), higher=higher) for column in draws.T])
    for a in range(3):
        low, high = direct.interval(each[:, a], LEVEL, "inverted_cdf")
        assert found[f"{name}_rank_low"][a].item() == low
        assert found[f"{name}_rank_high"][a].item() == high


def test_same_model_twice__is_never_better(ties: Cohort, rng: np.random.Generator) -> None:
    found = drawn(panel_of(ties, rng))
    for metric, node in found.children.items():
        for name in RESAMPLED[metric]:
            pair = node.to_dataset().sel(model="first", other="again")
            for suffix in ("difference", "difference_low", "difference_high"):
                assert not pair[f"{name}_{suffix}"].values.any()
            assert (pair[f"{name}_better"].values == 0.5).all()
            ranks = node[f"{name}_rank"].sel(model=["first", "again"])
            assert (ranks.isel(model=0) == ranks.isel(model=1)).all()


def test_result__of_one_metric_is_a_tree_of_one_node(ties: Cohort) -> None:
    tree = scored(ties, m=2)
    whole = drawn(tree)
    alone = drawn(tree["CRoMa"].to_dataset())
    assert list(alone.children) == ["CRoMa"]
    first, second = alone["CRoMa"].to_dataset(), whole["CRoMa"].to_dataset()
    first.attrs.pop("created")
    second.attrs.pop("created")
    xr.testing.assert_identical(first, second)
    assert first.value_low.dims == ()
    assert first.value_draws.dims == ("draw",)
    assert int(first.m) == 2
    assert int(whole["RI"].k) == int(tree["RI"].k)


def test_order_of_rows__decides_nothing(ties: Cohort, rng: np.random.Generator) -> None:
    tree = scored(ties)
    order = rng.permutation(len(ties))
    shuffled = xr.DataTree.from_dict(
        {name: node.to_dataset().isel(sample=order) for name, node in tree.children.items()}
    )
    first, second = drawn(tree), drawn(shuffled)
    for name in ("RI", "CRoMa"):
        for variable, array in first[name].data_vars.items():
            np.testing.assert_array_equal(second[name][variable], array)
    np.testing.assert_allclose(
        second["MaRI"].value_draws, first["MaRI"].value_draws, rtol=0, atol=1e-14
    )


def test_names_of_groups__matter_by_their_order_alone(ties: Cohort) -> None:
    tree = scored(ties)
    renamed = tree.copy(deep=True)
    for node in renamed.children.values():
        node.coords["group_id"] = (
            "sample",
            np.array([f"x/{g}" for g in node.group_id.values], object),
        )
    for name, node in drawn(tree).children.items():
        np.testing.assert_array_equal(drawn(renamed)[name].value_draws, node.value_draws)


def test_shift__moves_everything_along(ties: Cohort) -> None:
    margin = scored(ties)["CRoMa"].to_dataset()
    moved = margin.copy(deep=True)
    for name in ("sample_values", "value", "ltm_alpha"):
        moved[name] = moved[name] + 0.25
    before, after = drawn(margin)["CRoMa"], drawn(moved)["CRoMa"]
    for name in ("value", "ltm_alpha"):
        for suffix in ("", "_low", "_high", "_draws"):
            np.testing.assert_allclose(
                after[name + suffix], before[name + suffix] + 0.25, rtol=0, atol=1e-12
            )
        np.testing.assert_allclose(
            after[f"{name}_std_error"], before[f"{name}_std_error"], rtol=0, atol=1e-12
        )
    assert (after.f0_draws <= before.f0_draws).all()


class OnceEach:
    """A draw that takes every group once."""

    def __init__(self, n_groups: int) -> None:
        self.n_draws, self.n_groups = 1, n_groups

    def each(self, work: Any, n_threads: int) -> None:
        work(slice(0, 1), np.ones((1, self.n_groups), np.int32))


@pytest.mark.parametrize("kind", ["ties", "paired"])
def test_every_group_once__is_the_statistic_itself(
    kind: str, request: pytest.FixtureRequest
) -> None:
    from croma_dask.panel.models import as_panel, datasets_of
    from croma_dask.uncertainty.groups import Groups

    nodes = datasets_of(as_panel(scored(request.getfixturevalue(kind), alpha=0.3)))
    groups = Groups.of(nodes)
    found = draw_margin(nodes["CRoMa"], groups, OnceEach(groups.count), 1)  # type: ignore[arg-type]
    for name in ("value", "ltm_alpha", "f0"):
        np.testing.assert_allclose(found[name][0], nodes["CRoMa"][name], rtol=0, atol=1e-14)


def test_threads_and_blocks__change_no_bit(
    ties: Cohort, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = panel_of(ties, rng)
    expected = drawn(panel, threads=1)
    for block, threads in ((64, 3), (7, 1), (1, 2)):
        monkeypatch.setattr(draws_module, "_BLOCK_DRAWS", block)
        found = drawn(panel, threads=threads)
        for name, node in expected.children.items():
            for variable, array in node.data_vars.items():
                np.testing.assert_array_equal(found[name][variable], array)


def test_thread_that_fails__fails_the_call(ties: Cohort) -> None:
    def fail(at: slice, times: np.ndarray) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        draws_module.Draws(300, 7, 0).each(fail, 2)


def test_draws_without_a_value__are_left_out_and_counted(ties: Cohort) -> None:
    tree = scored(ties, m=2)
    frame = ties.frame
    for node in tree.children.values():
        keep = frame["group_id"].isin(["g1", "1"]).to_numpy()
        assert keep.any()
        for name in ("sample_values", "so_evidence", "os_evidence"):
            if name in node:
                neutral = np.nan if name == "sample_values" else 0.0
                node[name] = node[name].where(xr.DataArray(keep, dims="sample"), neutral)
    found = drawn(tree)
    for metric, node in found.children.items():
        for name in RESAMPLED[metric]:
            empty = np.isnan(node[f"{name}_draws"]).sum().item()
            assert 0 < empty < N_DRAWS
            assert node[f"{name}_empty_draws"].item() == empty
            assert not np.isnan(node[f"{name}_low"].item())
            # One group alone has a value: it is the same however often it was drawn.
            assert node[f"{name}_std_error"].item() == pytest.approx(0.0, abs=1e-12)


def test_nothing_defined__is_nan_without_a_warning(ties: Cohort) -> None:
    margin = scored(ties, m=2)["CRoMa"].to_dataset()
    for name in ("sample_values", "value", "ltm_alpha", "f0"):
        margin[name] = margin[name] * np.nan
    found = drawn(margin)["CRoMa"]
    assert int(found.value_empty_draws) == N_DRAWS
    for suffix in ("", "_low", "_high", "_std_error"):
        assert np.isnan(found[f"f0{suffix}"])
    both = cd.combine_results({"a": margin, "b": scored(ties, m=2)["CRoMa"].to_dataset()})
    pair = drawn(both)["CRoMa"].sel(model="a", other="b")
    assert np.isnan(pair.value_better)
    assert np.isnan(pair.value_rank)
    assert float(drawn(both)["CRoMa"].value_rank_high.sel(model="b")) == 1.0


def test_rows_that_are_not_scored__are_no_groups(paired: Cohort) -> None:
    lacking = (paired.frame["subset"] == "1") & (paired.frame["label"] == "0")
    frame = paired.frame[~lacking].reset_index(drop=True)
    left_out = frame["subset"] == "1"
    frame.loc[left_out, "group_id"] = "only here"
    with pytest.warns(cd.SupportWarning, match="no complete 2x2"):
        tree = scored(
            Cohort(paired.x[~lacking.to_numpy()], frame, "paired_2x2"), skip_incomplete=True
        )
    found = drawn(tree)
    assert found.attrs["n_groups"] == frame.loc[~left_out, "group_id"].nunique()
    expected = direct.statistics(tree["RI"].to_dataset(), N_DRAWS, SEED)["value"]
    np.testing.assert_allclose(found["RI"].value_draws, expected, rtol=0, atol=1e-12)


def test_lazy_result__is_the_same(ties: Cohort) -> None:
    tree = scored(ties)
    lazy = xr.DataTree.from_dict(
        {name: node.to_dataset().chunk({"sample": 17}) for name, node in tree.children.items()}
    )
    for name, node in drawn(tree).children.items():
        np.testing.assert_array_equal(drawn(lazy)[name].value_draws, node.value_draws)


def test_one_group__cannot_be_drawn_again(ties: Cohort) -> None:
    tree = scored(ties)
    for node in tree.children.values():
        node.coords["group_id"] = ("sample", np.full(len(ties), "slide 1", object))
    with pytest.raises(cd.SupportError, match=r"at least 2 groups.*same group_id \('slide 1'\)"):
        cd.bootstrap(tree)


@pytest.mark.filterwarnings("default:only")
def test_few_groups__are_warned_of(ties: Cohort) -> None:
    tree = scored(ties)
    for node in tree.children.values():
        node.coords["group_id"] = (
            "sample",
            np.resize(np.array(["a", "b", "c"], object), len(ties)),
        )
    with pytest.warns(cd.SupportWarning, match=r"only 3 groups \(group_id\)"):
        cd.bootstrap(tree, n_draws=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_draws": 0}, "n_draws must be a whole number from 1 on, found 0"),
        ({"n_draws": 10.0}, "n_draws must be a whole number from 1 on, found 10.0"),
        ({"n_draws": True}, "n_draws must be"),
        ({"seed": -1}, "seed must be a whole number from 0 on, found -1"),
        ({"level": 1.0}, r"level must be between 0 and 1 \(0.95 for 95 %\), found 1.0"),
        ({"level": 95}, "level must be between 0 and 1"),
        ({"level": "0.9"}, "level must be between 0 and 1"),
    ],
)
def test_arguments__are_checked(ties: Cohort, options: dict[str, Any], message: str) -> None:
    with pytest.raises(cd.SchemaError, match=message):
        cd.bootstrap(scored(ties), **options)


def test_inputs_of_another_kind__are_told(ties: Cohort) -> None:
    tree = scored(ties)
    with pytest.raises(cd.SchemaError, match="expected a result"):
        cd.bootstrap(5)  # type: ignore[arg-type]
    with pytest.raises(cd.SchemaError, match=r"has no 'so_evidence', 'os_evidence', .*again"):
        cd.bootstrap(tree["RI"].to_dataset().drop_vars(["so_evidence", "os_evidence"]))
    with pytest.raises(cd.SchemaError, match=r"has no 'evidence_distance', .*again"):
        cd.bootstrap(tree["MaRI"].to_dataset().drop_vars("evidence_distance"))
    with pytest.raises(cd.SchemaError, match="no result of score"):
        cd.bootstrap(drawn(tree))
    other = scored(ties)
    other["RI"].attrs["manifest_fingerprint"] = "another"
    with pytest.raises(cd.SchemaError, match="different rows"):
        cd.bootstrap(other)


def test_result__is_declared_and_labelled(ties: Cohort, rng: np.random.Generator) -> None:
    panel = panel_of(ties, rng)
    for result, compared in ((panel, True), (scored(ties, m=2), False)):
        found = drawn(result, keep_draws=compared)
        assert found.attrs["metric"] == "bootstrap"
        for metric, node in found.children.items():
            declared = uncertainty_of(metric, compared=compared, draws=compared)
            assert list(node.data_vars) == list(declared)
            for name, variable in declared.items():
                array = node[name]
                dims = tuple(d for d in variable.dims if compared or d != "model")
                swept = compared and metric == "CRoMa"
                assert array.dims == ((*dims, "m") if swept else dims)
                assert array.dtype.kind == variable.kind
                assert array.attrs["long_name"]
                assert array.attrs["units"] == "1"
                if variable.valid_min is not None:
                    assert not (array < variable.valid_min - 1e-12).any()
            attrs = node.attrs
            assert attrs["metric"] == "bootstrap"
            assert attrs["resampled_metric"] == metric
            assert attrs["interval"] == "percentile"
            assert attrs["resampled"] == "group_id"
            assert attrs["n_draws"] == N_DRAWS
            assert attrs["seed"] == SEED
            assert attrs["level"] == LEVEL
            assert attrs["n_groups"] == ties.frame["group_id"].nunique()
            assert all(type(v) in (str, int, float) for v in attrs.values())
    assert found["RI"].attrs["embedding_fingerprint"]
    assert drawn(panel)["CRoMa"]["other"].values.tolist() == ["first", "second/b", "again"]


@pytest.mark.parametrize("ending", ["zarr", "nc"])
@pytest.mark.parametrize("several", first(1, [True, False]))
def test_result__is_saved_and_opened_again(
    ending: str, several: bool, ties: Cohort, rng: np.random.Generator, tmp_path: Path
) -> None:
    found = drawn(panel_of(ties, rng) if several else scored(ties))
    for _ in range(2):
        save(found, tmp_path / f"sure.{ending}", overwrite=True)
    back = cd.open_result(tmp_path / f"sure.{ending}")
    assert back.attrs["metric"] == "bootstrap"
    for name, node in found.children.items():
        xr.testing.assert_identical(back[name].to_dataset().load(), node.to_dataset())
