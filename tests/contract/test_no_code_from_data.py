"""Nothing that is read can run code: no source loads any, and no file can ask for it.

The first half reads the sources. A place that needs one of the forbidden names stands in ALLOWED
with the reason, and one that is not needed any more fails as well. The second half hands every
reader a pickle that would leave a file behind.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from croma_dask.errors import CromaDaskError
from tests.contract.test_layers import MODULES, PACKAGE, name_of

# Modules that make objects or code of bytes, or that run what they are given.
MODULES_OF_CODE = {
    "_pickle", "cPickle", "cloudpickle", "code", "codeop", "copyreg", "dill", "imp", "joblib",
    "jsonpickle", "marshal", "pickle", "pickletools", "pydoc", "runpy", "shelve", "yaml",
    "zipimport",
}  # fmt: skip

# Of these what variables are called, too.
WORDS = {"code", "imp"}

BUILTINS_OF_CODE = {"__import__", "compile", "eval", "exec", "input", "breakpoint"}

# `re.compile` is another thing, and is told from the built-in by its dot.
ATTRIBUTES_OF_CODE = {
    "enable_unsafe_deserialization", "execfile", "from_pickle", "literal_eval", "load_module",
    "popen", "read_pickle", "system", "to_pickle", "unsafe_load", "spec_from_file_location",
    "exec_module", "Pickle", "set_allow_pickle",
}  # fmt: skip

# Calls that are safe with one argument only.
NUMPY_FILES = {"load", "save", "savez", "savez_compressed"}

ALLOWED = {
    ("__init__", "importlib.import_module(f'{__name__}.{name}')"): "one of _MODULES",
    ("__init__", "importlib.import_module(f'{__name__}.{_HOME[name]}')"): "a value of _HOME",
    ("__init__", "importlib.import_module(f'{__name__}.accessor')"): "a constant",
    ("cohort.__init__", "importlib.import_module(f'{__name__}.{_HOME[name]}')"): "a value of _HOME",
    ("cohort.readers.hdf5_vetting", "subprocess.Popen"): "a script of our own, no shell",
    ("embedding.extras", "importlib.import_module(module)"): "callers pass literals, see below",
    ("cohort.sharing", "import pickle"): "the class of an error; calls are found",
    ("embedding.leiden_processes", "subprocess.Popen"): "a list of arguments of our own, no shell",
}


@functools.cache
def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((word.value for word in call.keywords if word.arg == name), None)


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def suspicions(tree: ast.AST) -> Iterator[str]:
    """Every place of a source that could run what it reads, as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in MODULES_OF_CODE:
                    yield f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            names = {node.module or "", *(f"{node.module}.{a.name}" for a in node.names)}
            for name in names:
                parts = set(name.split("."))
                if parts & (MODULES_OF_CODE | ATTRIBUTES_OF_CODE):
                    yield f"from {name}"
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES_OF_CODE:
            yield dotted(node)
        elif isinstance(node, ast.keyword):
            if node.arg == "allow_pickle" and not is_constant(node.value, False):
                yield "allow_pickle other than False"
            elif node.arg == "shell" and not is_constant(node.value, False):
                yield "shell other than False"
        elif isinstance(node, ast.Call):
            yield from suspicions_of_call(node)


def suspicions_of_call(call: ast.Call) -> Iterator[str]:
    name = dotted(call.func)
    last = name.rpartition(".")[2]
    if name in BUILTINS_OF_CODE or name.split(".")[0] in MODULES_OF_CODE - WORDS:
        yield name
    elif name in {"importlib.import_module", "import_module"}:
        if not (len(call.args) == 1 and isinstance(call.args[0], ast.Constant)):
            yield ast.unparse(call)
    elif name.startswith("subprocess."):
        yield name
    elif name in {"np.load", "numpy.load"} and not is_constant(
        keyword(call, "allow_pickle"), False
    ):
        yield "np.load without allow_pickle=False"
    elif (
        name in {"np.memmap", "numpy.memmap"}
        and keyword(call, "dtype") is None
        and len(call.args) < 2
    ):
        yield "np.memmap without a dtype"
    elif name == "getattr" and len(call.args) > 1:
        base = dotted(call.args[0])
        if base in IMPORTED_MODULES and not isinstance(call.args[1], ast.Constant):
            yield ast.unparse(call)
    elif last == "loads" and name.split(".")[0] != "json":
        yield name


# What `getattr` with a name that is computed may not look into.
IMPORTED_MODULES = {
    "builtins", "croma_dask", "dask", "errors", "importlib", "np", "numpy", "os", "pd", "schema",
    "sys", "xr", "zarr",
}  # fmt: skip


def all_suspicions() -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for path in MODULES:
        name = name_of(path)
        if path.name == "__init__.py" and name != "__init__":
            name += ".__init__"
        for what in suspicions(parsed(path)):
            found[name, what] = found.get((name, what), 0) + 1
    return found


def test_sources__run_nothing_that_they_read() -> None:
    found = all_suspicions()
    assert found.keys() - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found.keys() == set(), "not needed any more"


BAD = """
import pickle
from joblib import load
import cloudpickle as c
eval(text)
exec(text)
compile(text, "a", "exec")
__import__(name)
importlib.import_module(name)
np.load(path)
np.load(path, allow_pickle=True)
np.load(path, None, anything)
pd.read_pickle(path)
yaml.unsafe_load(text)
subprocess.run(text, shell=True)
os.system(text)
os.popen(text)
getattr(np, name)
dill.loads(data)
pickle.load(file)
pickle.Unpickler(file)
f(allow_pickle=flag)
numcodecs.Pickle()
numcodecs.pickles.enable_unsafe_deserialization()
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_sources__the_search_finds_each_way(line: str) -> None:
    assert list(suspicions(ast.parse(line)))


GOOD = """
re.compile(text)
np.load(path, allow_pickle=False)
json.loads(text)
importlib.import_module("IPython.display")
getattr(value, "shape", None)
array.compile
"""


@pytest.mark.parametrize("line", GOOD.strip().splitlines())
def test_sources__the_search_lets_plain_ones_be(line: str) -> None:
    assert not list(suspicions(ast.parse(line)))


def test_extras__names_of_modules_are_literals() -> None:
    """`extras` imports by a name that it is handed: every caller hands a literal."""
    seen = 0
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "require":
                seen += 1
                assert isinstance(node.args[0], ast.Constant), (
                    f"{name_of(path)}: {ast.unparse(node)}"
                )
    assert seen


def test_page__scripts_run_no_text() -> None:
    for path in (PACKAGE / "report" / "assets" / "js").glob("*.js"):
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"\beval\(|new Function|\.innerHTML|outerHTML =|document\.write", text)
        assert not found, path.name


# --- files that ask for code ---


class Trap:
    """Unpickled, it makes a folder of this name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def sprung(tmp_path: Path) -> Path:
    return tmp_path / "sprung"


@pytest.fixture
def trap(sprung: Path) -> bytes:
    raw = pickle.dumps(Trap(sprung))
    pickle.loads(raw)
    assert sprung.is_dir(), "the trap itself works"
    sprung.rmdir()
    return raw


def write_npy(path: Path, trap: bytes, sprung: Path) -> Path:
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (4, 3), }"
    header = header.ljust(117) + b"\n"
    path = path.with_suffix(".npy")
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + trap)
    return path


def write_npz(path: Path, trap: bytes, sprung: Path) -> Path:
    inner = write_npy(path, trap, sprung)
    path = path.with_suffix(".npz")
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(inner, "features.npy")
    return path


PICKLE = {"id": "pickle", "protocol": 5}
TEXTS = {"id": "vlen-utf8"}

# Ways to name the codec that zarr itself does not take for a dtype that it does not know.
CODECS = {"filter": ([TEXTS, PICKLE], None), "compressor": ([TEXTS], PICKLE)}


def write_zarr2(path: Path, raw: bytes, shape: list[int], **about: Any) -> Path:
    """Write an array of version 2 of one chunk."""
    path.mkdir(parents=True)
    metadata = {
        "zarr_format": 2, "shape": shape, "chunks": shape, "order": "C", "compressor": None,
        "filters": None, "dtype": "<f4", "fill_value": 0, **about,
    }  # fmt: skip
    (path / ".zarray").write_text(json.dumps(metadata))
    (path / ".".join("0" * len(shape))).write_bytes(raw)
    return path


def write_zarr_rows(path: Path, trap: bytes, sprung: Path) -> Path:
    return write_zarr2(path.with_suffix(".zarr"), trap, [4, 3], filters=[PICKLE])


def write_zarr_ids(path: Path, trap: bytes, codecs: str) -> Path:
    """Write rows as they should be, with ids beside them that are pickled."""
    group = path.with_suffix(".zarr")
    rows = np.arange(12, dtype="<f4").tobytes()
    write_zarr2(group / "features", rows, [4, 3])
    filters, compressor = CODECS[codecs]
    write_zarr2(
        group / "sample_id", trap, [4], dtype="|O", fill_value="", filters=filters,
        compressor=compressor,
    )  # fmt: skip
    (group / ".zgroup").write_text('{"zarr_format": 2}')
    return group


def renamed(path: Path, trap: bytes, sprung: Path) -> Path:
    path = path.with_suffix(".h5ad")
    path.write_bytes(trap)
    return path


TRAPS: dict[str, Callable[[Path, bytes, Path], Path]] = {
    "npy": write_npy,
    "npz": write_npz,
    "zarr-rows": write_zarr_rows,
    "zarr-ids-filter": lambda path, trap, _: write_zarr_ids(path, trap, "filter"),
    "zarr-ids-compressor": lambda path, trap, _: write_zarr_ids(path, trap, "compressor"),
    "renamed": renamed,
}


@pytest.fixture
def live_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older releases of numcodecs unpickle whatever they read: be one of them."""
    from numcodecs.pickles import Pickle

    monkeypatch.setattr(
        Pickle, "decode", lambda self, buf, out=None: pickle.loads(bytes(buf)), raising=True
    )


@pytest.mark.usefixtures("live_pickles")
@pytest.mark.parametrize("kind", TRAPS)
def test_ingest__unpickles_nothing(kind: str, trap: bytes, sprung: Path, tmp_path: Path) -> None:
    features = TRAPS[kind](tmp_path / "features", trap, sprung)
    manifest = tmp_path / "manifest.csv"
    manifest.write_text("sample_id,label,group_id\n" + "".join(f"s{i},a,g\n" for i in range(4)))
    with pytest.raises(CromaDaskError):
        cd.ingest(str(features), str(manifest), str(tmp_path / "out.zarr"), progress=False)
    assert not sprung.exists()


@pytest.mark.usefixtures("live_pickles")
@pytest.mark.parametrize("codecs", CODECS)
def test_rank__unpickles_nothing(codecs: str, trap: bytes, sprung: Path, tmp_path: Path) -> None:
    from croma_dask.embedding.ranks import rank_embeddings

    group = write_zarr_ids(tmp_path / "values", trap, codecs)
    (group / "sample_id").rename(group / "dataset")
    (group / "dataset" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["dataset"]}')
    (group / "features").rename(group / "value")
    (group / "value" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["dataset", "method"]}')
    with pytest.raises(CromaDaskError, match="pickled chunks"):
        rank_embeddings(str(group))
    assert not sprung.exists()


def test_scratch__unpickles_nothing(trap: bytes, sprung: Path, tmp_path: Path) -> None:
    from croma_dask.index.scratch import Scratch

    write_npz(tmp_path / "codes", trap, sprung)
    assert Scratch(str(tmp_path)).find("codes.npz") is None
    assert not sprung.exists()


def test_schedule__evaluates_nothing(sprung: Path, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from croma_dask.cli import main

    path = tmp_path / "schedule.json"
    path.write_text(f"__import__('os').mkdir({str(sprung)!r})")
    store = str(Path(__file__).resolve().parents[2] / "stores" / "digits_raw.zarr")
    arguments = ["probe", store, "--confounder", "scanner", "--schedule", str(path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "cannot be read" in done.output
    assert not sprung.exists()
