"""What a notebook shows of a result or a cohort: a compact table, with its warnings.

Nothing along `sample` is read for it: of a result the numbers of the whole, of a cohort the codes
of small columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import markup
from croma_dask.cohort.view import view_cohort
from croma_dask.kinds import KINDS, kind_of
from croma_dask.outward import cell, visible
from croma_dask.panel.models import as_panel, datasets_of, is_panel
from croma_dask.results.whole import told_if_incomplete

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["describe_html", "describe_text"]

MAX_ROWS = 60
"""Rows of a table that are shown: a notebook is no place for more."""

_HEADLINE = {
    "value": "value", "std": "std", "support": "support", "median_value": "median",
    "q_alpha": "q(alpha)", "ltm_alpha": "LTM", "f0": "F(0)", "mean_rank": "mean rank",
}  # fmt: skip
_OF_NOTES = ("n_zero_rows", "index", "recall", "k_possible", "pair_values")
_INTERVALS = ("value", "ltm_alpha", "f0")


def describe_html(data: Any) -> str:
    """Show an object of this library as HTML, with everything in it escaped.

    Parameters
    ----------
    data
        Anything that has the accessor.

    Returns
    -------
    str
        One ``<div>`` in the colours of the page.
    """
    with told_if_incomplete(data):
        return _html(data)


def _html(data: Any) -> str:
    kind = kind_of(data)
    if kind == "cohort":
        return view_cohort(data)._repr_html_()
    title = f"croma-dask: {KINDS[kind]}"
    if kind == "result":
        small = _small(data)
        head, rows = _headline(small, panel=is_panel(data))
        table = markup.table(head, rows[:MAX_ROWS], n_text=head.index("value"))
        return markup.block(title, _sentence(data), table, [*_more(rows), *_notes(small)])
    if kind == "bootstrap":
        head, rows = _intervals(data)
        table = markup.table(head, rows[:MAX_ROWS], n_text=head.index("value"))
        return markup.block(title, _resampling(data), table, _more(rows))
    if kind == "breakdown":
        from croma_dask.breakdown.text import breakdown_frame

        frame = breakdown_frame(data)
        cells = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
        names = [str(name) for name in frame.columns]
        table = markup.table(names, cells[:MAX_ROWS], n_text=names.index("n_samples"))
        return markup.block(f"{title} by {_by(data)}", "", table, _more(cells))
    return markup.block(title, "", markup.lines(_lines(data, kind)))


def describe_text(data: Any) -> str:
    """Show an object of this library as lines of text: what :func:`describe_html` shows."""
    with told_if_incomplete(data):
        return _text(data)


def _text(data: Any) -> str:
    kind = kind_of(data)
    if kind == "cohort":
        return str(view_cohort(data))
    title = f"croma-dask: {KINDS[kind]}"
    if kind == "result":
        parts = [_sentence(data), _lines(data, kind), *_notes(_small(data))]
    elif kind == "bootstrap":
        head, rows = _intervals(data)
        parts = [_resampling(data), _aligned(head, rows[:MAX_ROWS]), *_more(rows)]
    else:
        parts = [_lines(data, kind)]
    # Tables are laid out by cells that are visible already; sentences hold names, too.
    return "\n".join([title, *(visible(part, keep="\n") for part in parts)])


def _lines(data: Any, kind: str) -> str:
    """Lay out what has a text of its own, else the dimensions and the names."""
    if kind != "unknown":
        from croma_dask.results import summary

        found = summary(data).splitlines()
        more = [f"and {len(found) - MAX_ROWS:,} lines more"] if len(found) > MAX_ROWS else []
        return "\n".join([*found[:MAX_ROWS], *more])
    return "\n".join(
        f"{getattr(node, 'path', '')} {dict(node.sizes)}: {', '.join(map(str, node.data_vars))}"
        for node in getattr(data, "subtree", [data])
        if len(node.variables)
    )


def _by(data: Any) -> str:
    dims = [str(dim) for dim in data["n_samples"].dims if dim not in ("model", "m")]
    return " x ".join(str(data.attrs.get(f"{dim}_column", dim)) for dim in dims)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return _number(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _small(data: Any) -> dict[str, xr.Dataset]:
    """Read what a headline needs, a panel of one where there is no panel."""
    found = {}
    for metric, dataset in datasets_of(as_panel(data)).items():
        names = [n for n in (*_HEADLINE, *_OF_NOTES, "tau", "k") if n in dataset.variables]
        # What stands along `sample` is no coordinate of these, and stays where it is.
        found[metric] = dataset[names].compute()
    return found


def _headline(small: dict[str, xr.Dataset], *, panel: bool) -> tuple[list[str], list[list[str]]]:
    shown = [n for n in _HEADLINE if any(n in dataset for dataset in small.values())]
    rows = []
    for metric, dataset in small.items():
        for at, row in _by_row(dataset):
            cells = [_number(row[name], name) if name in row else "" for name in shown]
            what = f"m = {int(row['m'])}" if "m" in row.coords else f"k = {int(row['k'])}"
            if metric == "MaRI" and "tau" in row:
                what += f", tau = {float(row['tau']):.4g}"
            rows.append([metric, *([at] if panel else []), what, *cells])
    head = ["metric", *(["model"] if panel else []), "at", *(_HEADLINE[n] for n in shown)]
    return head, rows


def _by_row(dataset: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """Every m, and every model at it."""
    for at in range(dataset.sizes["m"]) if "m" in dataset.dims else [None]:
        here = dataset if at is None else dataset.isel(m=at)
        for number, model in enumerate(dataset["model"].values):
            yield str(model), here.isel(model=number)


def _number(value: Any, name: str = "") -> str:
    number = float(value)
    if np.isnan(number):
        return "–"
    return f"{number:g}" if name.endswith("rank") else f"{number:.4f}"


def _sentence(data: Any) -> str:
    """Say what was computed."""
    first = next(iter(datasets_of(data).values()))
    said = {**first.attrs, **data.attrs}
    used, rows = said.get("n_rows_used", said.get("n_rows", 0)), said.get("n_rows", 0)
    parts = [
        f"{said.get('dataset') or 'cohort'}: {used:,} of {rows:,} samples scored"
        if said.get("evaluation_unit", "sample") == "sample"
        else f"{said.get('dataset') or 'cohort'}: {used:,} occurrences of {rows:,} rows scored",
        f"label {said.get('label_column', '?')!r} against confounder "
        f"{said.get('confounder_column', '?')!r}",
        f"groups by {said.get('group_column', '?')!r}",
        f"design {said.get('evaluation_design', '?')!r}",
    ]
    if "model" in first.dims:
        parts.insert(0, f"{first.sizes['model']} models")
    version = said.get("croma_dask_version")
    made = f" (croma-dask {version}, {said.get('created', '')})" if version else ""
    return "; ".join(parts) + made


def _notes(small: dict[str, xr.Dataset]) -> list[str]:
    """Say what a reader has to know before the numbers are believed."""
    notes = []
    first = next(iter(small.values()))
    if "index" in first.coords:
        found = zip(
            map(str, first["model"].values), map(str, np.atleast_1d(first["index"].values)),
            np.atleast_1d(first["recall"].values), strict=True,
        )  # fmt: skip
        searched = [(name, kind, float(recall)) for name, kind, recall in found if kind != "exact"]
        if searched:
            least = min(recall for _, _, recall in searched)
            notes.append(
                f"Neighbours of {_count(len(searched), 'embedding')} are approximate "
                f"({', '.join(sorted({kind for _, kind, _ in searched}))}; recall at least "
                f"{least:.3f})."
            )
    if "n_zero_rows" in first.coords and (zero := int(first["n_zero_rows"].values.max())):
        notes.append(f"The embedding has up to {zero:,} rows of zeros, which have no direction.")
    for metric, dataset in small.items():
        least = float(dataset["support"].min())
        if least < 1:
            notes.append(
                f"{metric}: support {least:.4f} at the least; the rest is undefined, and "
                "undefined_type says why."
            )
        if "k_possible" in dataset and (dataset["k_possible"].sum("k_candidate") > 1).any():
            notes.append(f"{metric}: the exact search may have chosen another operating k.")
        if "pair_values" in dataset and (left_out := int(dataset["pair_values"].isnull().sum())):
            notes.append(f"{metric}: {_count(left_out, 'value')} of subsets are undefined.")
    return notes


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _more(rows: list[list[str]]) -> list[str]:
    return [f"And {_count(len(rows) - MAX_ROWS, 'more row')}."] if len(rows) > MAX_ROWS else []


def _resampling(data: Any) -> str:
    said = data.attrs
    return (
        f"{100 * float(said['level']):g} % intervals from {said['n_draws']:,} draws of "
        f"{said['n_groups']:,} groups by {said['resampled']!r} (seed {said['seed']})"
    )


def _intervals(data: Any) -> tuple[list[str], list[list[str]]]:
    if getattr(data, "children", None):
        nodes = {name: node.to_dataset() for name, node in data.children.items()}
    else:
        nodes = {str(data.attrs.get("resampled_metric", "")): data}
    panel = any("model" in dataset.dims for dataset in nodes.values())
    rows = []
    for metric, dataset in nodes.items():
        names = [n for n in _INTERVALS if f"{n}_low" in dataset]
        small = dataset[[f"{n}{end}" for n in names for end in ("", "_low", "_high")]].compute()
        for at, row in _by_row(small if panel else small.expand_dims(model=[""])):
            radius = f", m = {int(row['m'])}" if "m" in row.coords else ""
            for name in names:
                value, low, high = (_number(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
                what = f"{_HEADLINE[name]}{radius}"
                rows.append([metric, *([at] if panel else []), what, value, f"{low} to {high}"])
    return ["metric", *(["model"] if panel else []), "of", "value", "interval"], rows


def _aligned(head: list[str], rows: list[list[str]]) -> str:
    shown = [[cell(text) for text in row] for row in [head, *rows]]
    widths = [max(len(row[at]) for row in shown) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    )
