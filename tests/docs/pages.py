"""Pages of docs/ as a reader who copies and pastes takes them: block by block, in their order."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import runpy
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from click.testing import Result

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

SHELL = re.compile(r"(pip|python|python3|git|make|cd|source|rm|xdg-open|open|jupyter|\.) ")
OF_THE_MACHINE = ("search", "tasks", "memory", "time", "index", "written:")
"""First words of lines that are other ones on another machine or on another day."""


@dataclass(frozen=True)
class Block:
    """One block of a page: `kind` is command, shell, python or shown."""

    kind: str
    text: str
    line: int


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the indented and the fenced blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        start, fence = at, re.match(r"```(\w*)$", lines[at])
        if fence:
            at = lines.index("```", at + 1) + 1
            text = "\n".join(lines[start + 1 : at - 1])
        elif lines[at].startswith("    ") and (not at or not lines[at - 1]):
            while at < len(lines) and (not lines[at] or lines[at].startswith("    ")):
                at += 1
            text = textwrap.dedent("\n".join(lines[start:at])).strip()
        else:
            at += 1
            continue
        yield Block(_kind(fence[1] if fence else "", text), text, start + 1)


def _kind(language: str, text: str) -> str:
    if language == "text":
        return "shown"
    if text.startswith("croma-dask "):
        return "command"
    if language == "bash" or SHELL.match(text):
        return "shell"
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return "shown"
    names = all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Name | ast.Constant)
                for node in tree.body)  # fmt: skip
    return "shown" if names else "python"


def commands_of(block: Block) -> list[list[str]]:
    """Split a block into its commands, lines that end in a backslash joined, patterns expanded."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [
        [word for part in shlex.split(line, comments=True)[1:] for word in glob(part) or [part]]
        for line in lines
        if line.strip()
    ]


def run_page(
    page: Path,
    run: Callable[..., Result],
    names: dict[str, Any],
    *,
    skip: Callable[[Block], bool] = lambda block: False,
) -> dict[str, int]:
    """Run every command and every snippet, compare what they print with what the page shows.

    Parameters
    ----------
    page
        A page of docs/.
    run
        Calls the program in this process.
    names
        What snippets see and set.
    skip
        Says which blocks are only to be read.

    Returns
    -------
    dict
        How many blocks of each kind there were.
    """
    count = dict.fromkeys(("command", "shell", "python", "shown"), 0)
    printed: str | None = None
    for block in blocks_of(page):
        if skip(block):
            printed = None
            continue
        count[block.kind] += 1
        if block.kind == "command":
            printed = ""
            for words in commands_of(block):
                done = run(*words)
                assert done.exit_code == 0, f"{page.name}:{block.line}: {words}\n{done.output}"
                printed += done.output
        elif block.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
            printed = out.getvalue()
        elif block.kind == "shell":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                run_scripts(block)
            printed = out.getvalue()
        elif block.kind == "shown" and printed is not None:
            assert missing_lines(block.text, printed) == [], f"{page.name}:{block.line}: {printed}"
        else:
            printed = None
    return count


def run_scripts(block: Block) -> None:
    """Run the lines of a block that call a script of examples/ or stores/, and no others."""
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if len(words) > 1 and words[0] == "python" and words[1].endswith(".py"):
            before, sys.argv = sys.argv, words[1:]
            try:
                runpy.run_path(str(ROOT / words[1]), run_name="__main__")
            finally:
                sys.argv = before


def missing_lines(shown: str, printed: str) -> list[str]:
    """Return the lines that were not printed, but for blanks and what depends on the machine."""
    found = {" ".join(line.split()) for line in printed.splitlines()}
    begun = {line.split(" ")[0] for line in found}
    missing = []
    for line in map(str.split, shown.splitlines()):
        if not line or line == ["..."]:
            continue
        if line[0] in OF_THE_MACHINE:
            ok = line[0] in begun
        else:
            ok = " ".join(line) in found
        if not ok:
            missing.append(" ".join(line))
    return missing
