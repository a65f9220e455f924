"""exp in plain arithmetic, beside decimals of forty digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from croma_dask.kernels.exponential import exp


def test_exp__is_within_one_unit_in_the_last_place() -> None:
    rng = np.random.default_rng(0)
    edges = [0.0, -0.0, 1.0, -1.0, 709.78, -708.4, -744.0, -745.13, 5e-324, -1e-300, 0.34657359]
    x = np.concatenate(
        [-rng.exponential(3.0, 800), rng.uniform(-745.0, 709.7, 800), rng.normal(size=200), edges]
    )
    with localcontext() as context:
        context.prec = 40
        for at, found in zip(x.tolist(), exp(x).tolist(), strict=True):
            error = abs(Decimal(found) - Decimal(at).exp())
            assert error < Decimal(float(np.spacing(found))), at


def test_exp__has_limits_order_and_shape() -> None:
    ends = np.array([[-np.inf, -1e308, -746.0], [np.inf, 1e308, 710.0]])
    np.testing.assert_array_equal(exp(ends), [[0.0] * 3, [np.inf] * 3])
    assert np.isnan(exp(np.array([np.nan]))).all()
    assert exp(np.zeros((2, 0))).shape == (2, 0)
    assert exp(np.array(0.0)) == 1.0
    x = np.sort(np.random.default_rng(1).uniform(-40.0, 1.0, 20_000))
    assert (np.diff(exp(x)) >= 0.0).all()


def test_exp__of_a_row_does_not_depend_on_the_others() -> None:
    x = -np.random.default_rng(2).exponential(2.0, 1001)
    one_by_one = [float(exp(x[i : i + 1])[0]) for i in range(0, 1001, 50)]
    assert exp(x)[::50].tolist() == one_by_one
    assert exp(x[::-1])[::-1].tolist() == exp(x).tolist()
