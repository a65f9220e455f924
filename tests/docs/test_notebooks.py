"""The notebooks of examples/ are committed without outputs, and run from a clean kernel."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
EXECUTED = ROOT / "build" / "notebooks"
"""Where the documentation looks for them."""

SECONDS_A_CELL = 300

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_notebooks__are_there() -> None:
    assert len(NOTEBOOKS) == 4


@each
def test_notebook__is_committed_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert set(notebook["metadata"]["language_info"]) == {"name"}
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@each
def test_notebook__explains_every_step(path: Path) -> None:
    """It begins with a title, and no two cells of code follow each other without a word."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    kinds = [cell["cell_type"] for cell in cells]
    assert kinds[0] == "markdown"
    assert cells[0]["source"][0].startswith("# ")
    assert ("code", "code") not in zip(kinds, kinds[1:], strict=False)


@pytest.mark.notebook
@each
def test_notebook__runs_from_a_clean_kernel(path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(
        notebook, timeout=SECONDS_A_CELL, kernel_name="python3", resources=where
    )
    with warnings.catch_warnings():
        # What Jupyter's own libraries deprecate is no fault of the notebook's.
        warnings.simplefilter("ignore")
        client.execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert outputs
    printed = "".join(out.text for out in outputs if out.output_type == "stream")
    assert not re.findall(r"^.*Warning: .*$", printed, flags=re.MULTILINE)
    EXECUTED.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, EXECUTED / path.name)
