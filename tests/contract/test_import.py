"""What `import croma_dask` and the command line's help cost, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

FORBIDDEN = {"jax", "matplotlib", "numba", "pynndescent", "scipy", "sklearn"}

# Not forbidden by name, but nothing that has no array in hand yet needs them.
LATE = {"anndata", "dask.array", "distributed", "h5py", "h5netcdf", "rich", "zarr"}


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import__loads_no_heavy_module() -> None:
    loaded = run_python(
        """
        import sys
        import croma_dask
        print(*sys.modules)
        """
    ).split()
    assert not (FORBIDDEN | LATE) & set(loaded)


def test_help__loads_no_heavy_module() -> None:
    pytest.importorskip("croma_dask.cli")
    loaded = run_python(
        """
        import sys
        sys.argv = ["croma-dask", "--help"]
        from croma_dask.cli import main
        try:
            main()
        except SystemExit as stop:
            assert not stop.code, stop.code
        print("modules:", *sys.modules)
        """
    )
    modules = loaded.rsplit("modules:", 1)[1].split()
    assert not (FORBIDDEN | LATE) & set(modules)


def test_import__takes_less_than_half_a_second() -> None:
    """Above Python itself, nearly all of it pandas and xarray, which the accessor needs.

    The best of several: what a busy machine adds to one of them is not the package's.
    """
    seconds, of_xarray = [], []
    for _ in range(7):
        first, both = run_python(
            """
            import time
            start = time.perf_counter()
            import xarray
            print(time.perf_counter() - start)
            import croma_dask
            print(time.perf_counter() - start)
            """
        ).split()
        of_xarray.append(float(first))
        seconds.append(float(both))
    own = min(both - first for both, first in zip(seconds, of_xarray, strict=True))
    assert own < 0.1, f"{own:.3f} s beside xarray"
    assert min(seconds) < 0.5, f"{min(seconds):.3f} s, of which xarray {min(of_xarray):.3f} s"
