"""The arguments of scoring: what each may be, and the message when it may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from tests.helpers.cohorts import Cohort, features, lattice_cohort, manifest
from tests.helpers.compare import assert_same_bits

COMMON: dict[str, Any] = {"confounder_column": "center"}


@pytest.fixture
def cohort(rng: np.random.Generator) -> Cohort:
    label, confounder = np.arange(60) % 2, np.arange(60) // 2 % 2
    x = features(rng, label, confounder, 5, biology=0.2, shortcut=0.2)
    return Cohort(x, manifest(label, confounder))


def ri(cohort: Cohort, k: Any) -> Any:
    return cd.RI.compute(cohort.x, cohort.frame, k_candidates=k, **COMMON)


def croma(cohort: Cohort, **options: Any) -> Any:
    return cd.CRoMa.compute(cohort.x, cohort.frame, **COMMON, **options)


BAD_NUMBERS: list[Any] = [
    [], (), [0], [-1], [20, 0], [2.5], [20.0], [True], [False, 20], ["20"], [None], "20", None, 0,
    True, [[20]], [np.nan], np.array([20.0]), np.array([True]),
]  # fmt: skip


@pytest.mark.parametrize("k", BAD_NUMBERS, ids=repr)
def test_k__must_be_whole_numbers_from_one(k: Any, cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match="k_candidates"):
        ri(cohort, k)
    with pytest.raises(cd.SchemaError, match="k_values"):
        cd.RI.compute_curve(cohort.x, cohort.frame, k_values=k, **COMMON)
    with pytest.raises(cd.SchemaError, match="k_candidates"):
        cd.score(cohort.x, cohort.frame, confounder="center", k_candidates=k)


@pytest.mark.parametrize("k", [0, -3, 2.5, True, "7", None, [3]], ids=repr)
def test_the_k_of_recommend_tau__is_one_whole_number(k: Any, cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match="k must|k is|k "):
        cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=k, **COMMON)


@pytest.mark.parametrize(
    "k", [[20, 25], (20, 25), np.array([20, 25]), np.array([20, 25], "u1"), range(20, 26, 5),
          [np.int64(20), 25], [20, 25, 20]], ids=repr,
)  # fmt: skip
def test_k__may_come_in_any_container(k: Any, cohort: Cohort) -> None:
    found = ri(cohort, k)
    assert found.k_candidate.values.tolist() == [20, 25]
    assert_same_bits(found, ri(cohort, [20, 25]))


def test_a_k_beyond_the_rows__stays_in_the_curve_alone(cohort: Cohort) -> None:
    found = ri(cohort, [70, 20, 60, 59])
    assert found.k_candidate.values.tolist() == [70, 20, 60, 59]
    assert np.isnan(found.balanced_accuracy).values.tolist() == [True, False, True, False]
    assert int(found.k) in (20, 59)
    curve = found.curve.values
    assert curve[0] == curve[2] == curve[3]


@pytest.mark.parametrize("m", BAD_NUMBERS, ids=repr)
def test_m__must_be_whole_numbers_from_one(m: Any, cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match=r"\bm "):
        croma(cohort, m=m)


@pytest.mark.parametrize("m", [3, np.int64(3), np.uint8(3), np.array(3)], ids=repr)
def test_one_m__is_a_scalar_coordinate(m: Any, cohort: Cohort) -> None:
    found = croma(cohort, m=m)
    assert "m" not in found.dims
    assert int(found.m) == 3
    assert found.value.dims == ()


@pytest.mark.parametrize("m", [[3, 1, 3, 2], (3, 1, 2), np.array([3, 1, 2])], ids=repr)
def test_several_m__are_a_dimension_in_the_given_order(m: Any, cohort: Cohort) -> None:
    found = croma(cohort, m=m)
    assert found.m.values.tolist() == [3, 1, 2]
    assert found.sample_values.dims == ("m", "sample")
    for single in (3, 1, 2):
        one = croma(cohort, m=single)
        for variable in one.data_vars:
            part = found[variable]
            part = part.sel(m=single) if "m" in part.dims else part
            assert part.values.tobytes() == one[variable].values.tobytes(), variable


def test_a_list_of_one_m__keeps_the_dimension(cohort: Cohort) -> None:
    assert croma(cohort, m=[4]).sizes["m"] == 1


@pytest.mark.filterwarnings("ignore:.*units cannot be scored")
def test_an_m_beyond_every_supply__leaves_nothing_defined(cohort: Cohort) -> None:
    found = croma(cohort, m=[1, 500])
    assert float(found.sel(m=500).undefined_frac) == 1.0
    assert np.isnan(float(found.sel(m=500).value))
    assert np.isnan(float(found.sel(m=500).f0))
    assert float(found.sel(m=1).undefined_frac) == 0.0


def test_default_m_and_alpha(cohort: Cohort) -> None:
    assert_same_bits(croma(cohort), croma(cohort, m=5, alpha=0.1, start_k=200))


@pytest.mark.parametrize("alpha", [-0.01, 1.01, np.nan, np.inf, "x", None, [0.1]], ids=repr)
def test_alpha__must_lie_in_its_range(alpha: Any, cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match="alpha"):
        croma(cohort, alpha=alpha)


@pytest.mark.parametrize("alpha", [0, 0.0, 0.5, 1, np.float32(0.25)], ids=repr)
def test_alpha__includes_its_ends(alpha: Any, cohort: Cohort) -> None:
    found = croma(cohort, alpha=alpha)
    values = found.sample_values.values
    assert float(found.q_alpha) == np.quantile(values, float(alpha))
    assert float(found.ltm_alpha) == pytest.approx(values[values <= float(found.q_alpha)].mean())
    assert type(found.attrs["alpha"]) is float


@pytest.mark.parametrize(
    "options",
    [
        {"start_k": 0}, {"start_k": -5}, {"start_k": 2.5}, {"start_k": True}, {"start_k": None},
        {"start_k": []}, {"start_k": [1, 2]}, {"k_growth_factor": 1.0}, {"k_growth_factor": 0.5},
        {"k_growth_factor": np.nan}, {"k_growth_factor": "x"}, {"k_growth_factor": None},
    ],
    ids=repr,
)  # fmt: skip
def test_the_radius_of_a_search__is_checked_though_unused(
    options: dict[str, Any], cohort: Cohort
) -> None:
    with pytest.raises(cd.SchemaError, match=next(iter(options))):
        croma(cohort, **options)


def test_the_radius_of_a_search__changes_nothing(cohort: Cohort) -> None:
    assert_same_bits(croma(cohort, start_k=1, k_growth_factor=1.5), croma(cohort))


@pytest.mark.parametrize("metrics", [["ri", "croma"], ("CRoMa", "RI", "ri"), "mari"], ids=repr)
def test_metrics__are_named_in_any_case_and_come_in_that_order(
    metrics: Any, cohort: Cohort
) -> None:
    tree = cd.score(cohort.x, cohort.frame, confounder="center", metrics=metrics, k_candidates=[20])
    expected = {"ri": "RI", "mari": "MaRI", "croma": "CRoMa"}
    names = [metrics] if isinstance(metrics, str) else metrics
    assert list(tree.children) == list(dict.fromkeys(expected[n.lower()] for n in names))


@pytest.mark.parametrize("metrics", [["R1"], [], "", ["RI", "LISI"]], ids=repr)
def test_unknown_metrics__are_refused(metrics: Any, cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match="metric"):
        cd.score(cohort.x, cohort.frame, confounder="center", metrics=metrics, k_candidates=[20])


def test_the_arguments__are_checked_before_the_embedding_is_read(cohort: Cohort) -> None:
    class Unreadable:
        shape = (60, 5)
        dtype = np.dtype("f8")

        def __getitem__(self, key: Any) -> Any:
            raise AssertionError("read too early")

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("read too early")

    x: Any = Unreadable()
    for call in (
        lambda: cd.RI.compute(x, cohort.frame, k_candidates=[0], **COMMON),
        lambda: cd.CRoMa.compute(x, cohort.frame, m=0, **COMMON),
        lambda: cd.MaRI.compute(x, cohort.frame, k_candidates=[3], tau=0, **COMMON),
        lambda: cd.RI.compute(x, cohort.frame, confounder_column="site", k_candidates=[3]),
        lambda: cd.RI.compute(x, cohort.frame[:-1], k_candidates=[3], **COMMON),
    ):
        with pytest.raises(cd.SchemaError):
            call()


def test_keywords_only__as_in_the_reference(cohort: Cohort) -> None:
    with pytest.raises(TypeError):
        cd.RI.compute(cohort.x, cohort.frame, "center", [20])  # type: ignore[misc]


@pytest.mark.parametrize(("column", "what"), [("label", "label"), ("group_id", "group")])
def test_the_label_or_the_group_as_confounder__is_refused(
    cohort: Cohort, column: str, what: str
) -> None:
    with pytest.raises(cd.SchemaError, match=f"as confounder and as {what}"):
        cd.RI.compute(cohort.x, cohort.frame, confounder_column=column, k_candidates=[20])


def test_column_names__are_free(cohort: Cohort) -> None:
    renamed = cohort.frame.rename(
        columns={"label": "class", "group_id": "patient", "sample_id": "tile", "center": "site"}
    )
    found = cd.score(
        cohort.x, renamed, confounder="site", label="class", group="patient", sample_id="tile",
        k_candidates=[20],
    )  # fmt: skip
    expected = cd.score(cohort.x, cohort.frame, confounder="center", k_candidates=[20])
    for name in ("RI", "MaRI", "CRoMa"):
        a, b = found[name].to_dataset(), expected[name].to_dataset()
        assert a["confounder"].attrs.pop("column") == "site"
        assert b["confounder"].attrs.pop("column") == "center"
        columns = [ds.attrs.pop("confounder_column") for ds in (a, b)]
        assert columns == ["site", "center"]
        assert [ds.attrs.pop("label_column") for ds in (a, b)] == ["class", "label"]
        assert [ds.attrs.pop("group_column") for ds in (a, b)] == ["patient", "group_id"]
        assert_same_bits(a, b)


def test_options__are_known_by_name(cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match="'memroy'"):
        cd.set_options(memroy="1GB")
    with cd.set_options(memory="much"), pytest.raises(cd.SchemaError, match="'512MB'"):
        ri(cohort, [5])


@pytest.mark.filterwarnings("ignore:.*units")
@pytest.mark.parametrize("k", [2**31, 10**12])
def test_paired__a_huge_k_is_clipped_as_under_all(k: int, rng: np.random.Generator) -> None:
    """Far beyond what an int32 holds, and beyond every subset."""
    cohort = lattice_cohort(rng, 60, n_features=3, reach=4, n_subsets=2)
    found = cd.RI.compute(cohort.x, cohort.frame, k_candidates=[5, k], **cohort.arguments)
    assert int(found.k) == 5
