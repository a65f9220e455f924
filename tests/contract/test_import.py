"""What `import croma_dask` and the command line's help cost, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FORBIDDEN = {"jax", "matplotlib", "numba", "pynndescent", "scipy", "sklearn"}

# Not forbidden by name, but nothing that has no array in hand yet needs them.
LATE = {"anndata", "dask.array", "distributed", "h5py", "h5netcdf", "rich", "zarr"}


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
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
    """Above Python itself; the accessor needs xarray, and the package must add little to that.

    In time of the importing thread, the best of several tries: that is what a quiet machine takes,
    where the wall clock of a busy one counts its other work too.
    """
    best, own = float("inf"), float("inf")
    for _ in range(10):
        of_xarray, total = map(
            float,
            run_python(
                """
                import time
                start = time.thread_time()
                import xarray
                print(time.thread_time() - start)
                import croma_dask
                print(time.thread_time() - start)
                """
            ).split(),
        )
        best, own = min(best, total), min(own, total - of_xarray)
        if best < 0.5 and own < 0.05:
            return
    pytest.fail(f"{best:.3f} s in all, {own:.3f} s of it beside xarray")
