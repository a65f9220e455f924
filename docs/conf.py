"""How Sphinx builds the pages of this folder; `make docs` runs it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import shutil
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import croma_dask
from croma_dask.cli import main

ROOT = Path(__file__).resolve().parents[1]

project = "croma-dask"
author = "croma-dask contributors"
copyright = author
version = release = croma_dask.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["images/README.md"]
html_theme = "furo"
html_title = f"croma-dask {version}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# Code in these pages says by itself what it is; see `name_language`.
highlight_language = "none"

myst_heading_anchors = 4

# Notebooks are executed by `make notebooks`, which fails on an error; here they are shown.
nb_execution_mode = "off"
nb_merge_streams = True

# Docstrings are written in numpy's style and say the types that they mean.
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
# Several attributes may share a line, which the markup for single ones cannot say.
napoleon_custom_sections = [("Attributes", "params_style")]
default_role = "code"  # `name` in a docstring
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False

# Cross-references within the package have to lead somewhere: see `find_public`.
nitpicky = True
FOREIGN = {
    "collections",
    "dask",
    "distributed",
    "matplotlib",
    "numpy",
    "pandas",
    "random",
    "xarray",
}

# Pages of this site that are files elsewhere in the repository.
ELSEWHERE = {
    "../stores/README.md": "store.md",
    "../benchmarks/README.md": "benchmarks.md",
    "../CHANGELOG.md": "changelog.md",
    "../CONTEXT.md": "glossary.md",
    "../README.md": "index.md",
}


def name_language(app: Sphinx, document: nodes.document) -> None:
    """Say what an indented block is, so that it is coloured: commands, Python, or plain text."""
    for block in document.findall(nodes.literal_block):
        if "language" in block:
            continue
        text = block.astext()
        if re.match(r"(croma-dask|make|pip|python|rm|git|cd) ", text):
            block["language"] = "console" if text.startswith("$") else "bash"
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        # One bare name or number is more likely to be something that was printed.
        if any(not isinstance(node, ast.Expr) or len(text) > 12 for node in tree.body):
            block["language"] = "python"


def complete_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Send links out of this folder to the pages that show their files; add what is generated."""
    up = "../" * docname.count("/")
    for there, here in ELSEWHERE.items():
        source[0] = source[0].replace(f"]({up}{there}", f"]({up}{here}")
    if docname == "adr/README":
        # Its table serves readers of the repository; the site wants its pages in a tree as well.
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"
    if docname == "api/commands":
        source[0] += "".join(help_of(name) for name in sorted(main.commands))


def help_of(name: str) -> str:
    """Return what a command says of itself, as a section of a page."""
    with click.Context(main, info_name="croma-dask") as parent:
        command = main.commands[name]
        context = click.Context(command, info_name=name, parent=parent, max_content_width=100)
        return f"\n## {name}\n\n```text\n{command.get_help(context)}\n```\n"


def find_object(name: str) -> object:
    """Return the object of a dotted name in this package; LookupError where there is none."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        try:
            for part in parts[length:]:
                found = getattr(found, part)
        except AttributeError:
            break
        return found
    raise LookupError(name)


def find_public(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.Element
) -> nodes.Element | None:
    """Resolve a name that docstrings use and that is not on these pages under that name.

    What is public under another name becomes a link to that. What is inside of the package is left
    as text. A name that leads nowhere stays a warning.
    """
    if node.get("refdomain") != "py":
        return None
    target, role = node["reftarget"], node["reftype"]
    module = node.get("py:module") or "croma_dask"
    if target.split(".")[0] in FOREIGN:
        return contnode
    for name in (target, f"{module}.{target}", f"croma_dask.{target}"):
        if not name.startswith("croma_dask."):
            continue
        with contextlib.suppress(LookupError):
            found = find_object(name)
            domain = env.domains.python_domain
            for public in domain.objects:
                with contextlib.suppress(LookupError):
                    if public != target and find_object(public) is found:
                        return domain.resolve_xref(
                            env,
                            node["refdoc"],
                            app.builder,
                            role,
                            public,
                            node,
                            contnode,
                        )
            return contnode
    return None


def guard_colon(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Let the first sentence of a property have a colon.

    napoleon takes what stands before it for the type of the attribute; an empty comment in its
    place holds none.
    """
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]


def take_notebooks(app: Sphinx) -> None:
    """Copy the executed notebooks to where pages are looked for."""
    folder = ROOT / "docs" / "notebooks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for notebook in sorted((ROOT / "build" / "notebooks").glob("*.ipynb")):
        shutil.copy2(notebook, folder)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what is above."""
    take_notebooks(app)
    app.connect("source-read", complete_pages)
    app.connect("doctree-read", name_language)
    app.connect("missing-reference", find_public)
    app.connect("autodoc-process-docstring", guard_colon, priority=400)  # before napoleon
    return {"parallel_read_safe": True}
