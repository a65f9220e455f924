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


def test_import__adds_next_to_nothing_to_what_xarray_takes() -> None:
    """The accessor needs xarray (and pandas with it); the package itself must not add to that.

    Processor time, the best of several tries: a busy machine must not fail the test. What the whole
    import takes, on a quiet machine, is in benchmarks/README.md.
    """
    own = float("inf")
    for _ in range(10):
        of_xarray, total = map(
            float,
            run_python(
                """
                import time
                start = time.process_time()
                import xarray
                print(time.process_time() - start)
                import croma_dask
                print(time.process_time() - start)
                """
            ).split(),
        )
        own = min(own, total - of_xarray)
        if own < 0.05:
            return
    pytest.fail(f"croma_dask takes {own:.3f} s beside xarray")
