"""HTML for notebooks: small tables of plain text, and a bar, readable on light and on dark pages.

Colours are those of the page: nothing here sets one. Everything that is passed in is text, and is
escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from croma_dask.outward import visible

__all__ = ["bar", "block", "facts", "lines", "table"]

# Said of every cell: notebooks align all of them to the right.
_TEXT = "text-align:left"
_NUMBER = "text-align:right"
_WHOLE = "white-space:nowrap"
_TABLE = '<table style="border-spacing:10px 2px">'
_LINE = "border-bottom:1px solid"
_NOTE = "margin:4px 0"


def facts(
    rows: Iterable[tuple[str, str]],
    *,
    title: str = "",
    sentence: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Lay out names and what there is to say of each, one below the other.

    Parameters
    ----------
    rows
        (name, text) pairs, in order.
    title, sentence
        What is described, and the whole of it in a sentence; left out where empty.
    notes
        Sentences below the table.

    Returns
    -------
    str
        One ``<div>``.

    Examples
    --------
    >>> "2 &lt; 3" in facts([("samples", "2 < 3")])
    True
    """
    body = "".join(
        f'<tr><th scope="row" style="{_TEXT};{_WHOLE}">{_escaped(name)}</th>'
        f'<td style="{_TEXT}">{_escaped(text)}</td></tr>'
        for name, text in rows
    )
    return block(title, sentence, f"{_TABLE}<tbody>{body}</tbody></table>" if body else "", notes)


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, n_text: int = 1, caption: str = ""
) -> str:
    """Lay out numbers in rows and columns.

    Parameters
    ----------
    head
        Names of the columns.
    rows
        As many cells each.
    n_text
        How many of the first columns are names: aligned to the left, the rest to the right.
    caption
        What the table shows; left out where empty.

    Returns
    -------
    str
        One ``<table>``.
    """
    styles = [
        f"{_TEXT};{_WHOLE}" if at < n_text else f"{_NUMBER};{_WHOLE}" for at in range(len(head))
    ]
    top = "".join(
        f'<th scope="col" style="{style};{_LINE}">{_escaped(name)}</th>'
        for style, name in zip(styles, head, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{style}">{_escaped(cell)}</td>'
            for style, cell in zip(styles, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    about = f'<caption style="text-align:left">{_escaped(caption)}</caption>' if caption else ""
    return f"{_TABLE}{about}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def block(title: str, sentence: str, content: str, notes: Sequence[str] = ()) -> str:
    """Put HTML that this module has made between a title and notes, which are text."""
    parts = [f"<div><strong>{_escaped(title)}</strong></div>"] if title else []
    parts += [f'<div style="{_NOTE}">{_escaped(sentence)}</div>'] if sentence else []
    parts.append(content)
    parts += [f'<div style="{_NOTE}">{_escaped(note)}</div>' for note in notes]
    return f"<div>{''.join(parts)}</div>"


def lines(text: str) -> str:
    """Keep text that is laid out in columns as it is."""
    shown = html.escape(visible(text, keep="\n"))
    return f'<pre style="background:none;color:inherit">{shown}</pre>'


def bar(done: int, total: int, text: str) -> str:
    """Draw how far something has come: the page's own element, with what a line would say."""
    most = max(total, 1)
    value = min(max(done, 0), most)
    return (
        f'<div style="display:flex;flex-wrap:wrap;gap:10px;align-items:center">'
        f'<progress value="{value}" max="{most}" aria-label="{_escaped(text)}"></progress>'
        f"<span>{_escaped(text)}</span></div>"
    )


def _escaped(text: str) -> str:
    # Text that a page would take apart: newlines are kept as breaks.
    return html.escape(visible(text, keep="\n\t"), quote=True).replace("\n", "<br>")
