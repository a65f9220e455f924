"""Every target on its seeds and on a few mutations of them, the same ones in every run.

The long runs are ``python -m tests.fuzz``: in processes of their own, with limits of memory and
time, guided by coverage.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from croma_dask.errors import SchemaError
from tests.fuzz.harness import (
    LINK,
    Target,
    all_targets,
    load_tree,
    pack,
    plant_canaries,
    run_one,
    save_tree,
    seed_trees,
    unpack,
)
from tests.fuzz.mutators import mutate_tree

TARGETS = all_targets()
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if target.slow else name
    for name, target in TARGETS.items()
]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", NAMES)
def test_target__seeds_and_mutations_end_in_a_result_or_a_refusal(name: str, tmp_path: Path):
    target = TARGETS[name]
    (tmp_path / "run" / "outside").mkdir(parents=True)
    plant_canaries(tmp_path / "run" / "outside")
    seeds = seed_trees(target, tmp_path / "seeds")
    rng = random.Random(name)
    mutated = [mutate_tree(rng.choice(seeds), target, rng) for _ in range(target.quick or 20)]
    kinds = []
    for tree in [*seeds, *mutated]:
        outcome = run_one(target, tree, tmp_path / "run")
        if outcome is not None:
            assert not outcome.is_finding, f"{outcome.key}\n{outcome.detail}"
            kinds.append(outcome.kind)
    # a target that reads nothing tests nothing
    assert "read" in kinds[: len(seeds)]


def _seed(folder: Path) -> None:
    (folder / "x").write_bytes(b"x")


def _fail(path: Path, work: Path) -> None:
    raise KeyError("x")


def _refuse(path: Path, work: Path) -> None:
    raise SchemaError("no")


def _long(path: Path, work: Path) -> None:
    raise SchemaError("x" * 20_000)


@pytest.mark.parametrize(
    ("run", "allowed", "kind"),
    [
        (lambda path, work: None, (), "read"),
        (_refuse, (), "refused"),
        (_fail, (), "exception"),
        (_fail, (KeyError,), "refused"),
        (_long, (), "message"),
    ],
)
def test_harness__tells_findings_from_refusals(tmp_path: Path, run, allowed, kind: str):
    outcome = run_one(Target("t", _seed, run, allowed=allowed), {"x": b"x"}, tmp_path)
    assert outcome is not None
    assert outcome.kind == kind
    assert not (tmp_path / "case").exists()


def test_harness__trees_survive_being_packed_and_written(tmp_path: Path):
    tree = {"s/a": b"1", "s/b/c": b"", "s/l": LINK + b"a"}
    assert unpack(pack(tree)) == tree
    assert load_tree(save_tree(tree, tmp_path)) == tree
    for name in ("../x", "/x", "a//b", "a/../../b", "a\0"):
        with pytest.raises(ValueError, match="is no file's path"):
            save_tree({name: b""}, tmp_path)


_WATCHED = """
import sys
from pathlib import Path
from tests.fuzz import harness
harness.watch_files()
root = Path(sys.argv[1])
(root / "secret").write_text("x")
steal = harness.Target("t", None, lambda path, work: open(root / "secret").read())
print(harness.run_one(steal, {"x": b"x"}, root).kind)
own = harness.Target("t", None, lambda path, work: (path.read_text(), (work / "y").write_text("")))
print(harness.run_one(own, {"x": b"x"}, root).kind)
print(harness.run_one(own, {"x": harness.LINK + b"../../secret"}, root).kind)
"""


def test_harness__notices_files_opened_outside_of_the_input(tmp_path: Path):
    command = [sys.executable, "-c", _WATCHED, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["outside", "read", "outside"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", [[], ["--no-atheris"]])
def test_command__prints_a_table(tmp_path: Path, engine: list[str]):
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "0.2", "--targets", "npy,npz"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path), *engine],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| np")]
    assert [row[0].strip() for row in rows] == ["npy", "npz"]
    assert all(int(row[1].replace(",", "")) > 50 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("while True: pass", "hang"),
        ("bytearray(1 << 33)", "memory"),
        ("import ctypes; ctypes.string_at(0)", "signal"),
    ],
)
def test_command__finds_a_hang_a_crash_and_an_allocation(tmp_path: Path, body: str, word: str):
    """With a target that does so on its mutations, and not on its seed."""
    targets = tmp_path / "tests" / "fuzz"
    targets.mkdir(parents=True)
    for path in Path(__file__).parent.glob("*.py"):
        if not path.name.startswith(("targets_", "test_")):
            (targets / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tests" / "__init__.py").touch()
    (targets / "targets_bad.py").write_text(
        "from tests.fuzz.harness import Target\n"
        "def seeds(folder): (folder / 'x').write_bytes(b'seed')\n"
        "def run(path, work):\n"
        "    if path.read_bytes() != b'seed':\n"
        f"        {body}\n"
        "TARGETS = [Target('bad', seeds, run)]\n"
    )
    (targets / "harness.py").write_text(
        (targets / "harness.py").read_text().replace("SECONDS = 10.0", "SECONDS = 1.0")
    )
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "0.3", "--no-atheris"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert word in done.stdout
    assert list((tmp_path / "out" / "bad").glob("failing-*"))
