"""Imports point downwards only, and heavy libraries stay out of module level."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "croma_dask"

# From the top to the bottom. A module may import from its own layer and from those below.
LAYERS: list[set[str]] = [
    {"__main__"},
    {"__init__", "cli", "accessor"},
    {
        "cli_benchmark",
        "cli_bootstrap",
        "cli_breakdown",
        "cli_index",
        "cli_probe",
        "cli_rank",
        "cli_report",
        "cli_score",
    },
    {"cli_options"},
    {"report"},
    {"plotting"},
    {"breakdown", "downstream", "notebook", "plan", "plans", "results", "score", "uncertainty"},
    {"panel"},
    {"robustness", "probe", "embedding"},
    {"search"},
    {"approximate", "build"},
    {"closer"},
    {"graph", "first_pass"},
    {"cost", "tasks"},
    {"resume"},
    {"layout", "cluster"},
    {"index"},
    {"cohort"},
    {"kinds", "schema_benchmark", "schema_breakdown", "schema_panel", "schema_uncertainty"},
    {
        "active",
        "schema",
        "memory",
        "options",
        "errors",
        "progress",
        "fingerprint",
        "formats",
        "markup",
        "one_writer",
        "outward",
        "temporary",
        "whole_files",
        "whole_folders",
    },
    {"kernels"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# Too slow, or too large, to come with `import croma_dask`: imported inside the functions that need
# them. In the layers named, which are only reached when there is something to compute, they may
# stand at module level.
HEAVY = {
    "anndata": set(),
    "dask": {"graph", "search", "robustness", "index", "cohort", "score", "plan"},
    "distributed": {"search"},
    "faiss": set(),
    "h5netcdf": set(),
    "h5py": {"cohort"},
    "matplotlib": set(),
    "numba": {"kernels"},
    "pyarrow": {"cohort"},
    "pynndescent": set(),
    "rich": set(),
    "sklearn": set(),
    "zarr": {"cohort", "search"},
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """Dotted name below the package: ``cohort.store``, ``cohort`` for its ``__init__``."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(tree: ast.AST, *, top_only: bool) -> Iterator[str]:
    """Absolute names of what is imported; annotations' imports do not count.

    ``from a import b`` yields ``a.b``: whether b is a module or a name in one, its layer is known.
    """
    for node in ast.iter_child_nodes(tree):
        if is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (top_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from imports(node, top_only=top_only)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_layers__imports_point_downwards(path: Path) -> None:
    own = name_of(path).split(".")[0]
    assert own in LEVEL, f"{own} belongs to no layer: give it one in LAYERS and in docs/adr/0001"
    if own == "__init__":
        return
    upwards = []
    for imported in imports(ast.parse(path.read_text()), top_only=False):
        root, *rest = imported.split(".")
        if root != "croma_dask":
            continue
        # `from croma_dask import __version__` is a constant, and no layer.
        target = rest[0] if rest and rest[0] in LEVEL else None
        if target is None:
            assert rest == ["__version__"], f"import {imported} from the module that holds it"
        elif LEVEL[target] < LEVEL[own]:
            upwards.append(imported)
    assert not upwards, f"{own} is below what it imports"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_layers__heavy_libraries_are_imported_where_used(path: Path) -> None:
    own = name_of(path).split(".")[0]
    found = {name.split(".")[0] for name in imports(ast.parse(path.read_text()), top_only=True)}
    heavy = {name for name in found & HEAVY.keys() if own not in HEAVY[name]}
    assert not heavy, f"{name_of(path)} imports {sorted(heavy)} at module level"


@pytest.mark.parametrize(
    "path", [p for p in MODULES if name_of(p).split(".")[0] == "kernels"], ids=name_of
)
def test_layers__kernels_know_plain_arrays_only(path: Path) -> None:
    found = {name.split(".")[0] for name in imports(ast.parse(path.read_text()), top_only=False)}
    assert not found & {"dask", "distributed", "xarray", "zarr", "pandas"}


def test_layers__sources_use_no_parallel_numba_and_no_compiled_cache() -> None:
    """Threads belong to Dask, and a cache on disk shared by processes has crashed workers."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg in {"parallel", "cache"}:
                is_true = isinstance(node.value, ast.Constant) and node.value.value is True
                assert not is_true, f"{name_of(path)}: {node.arg}=True"
