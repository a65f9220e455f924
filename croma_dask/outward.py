"""Texts of data on their way out: to a terminal, and into the cells of a table.

Names come from files that others made. On a terminal a control character moves the cursor, and a
spreadsheet computes a cell that begins with ``=``. HTML is :mod:`croma_dask.markup`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["cell", "guarded", "named", "shortened", "unguarded", "visible"]

_MOST = 80
"""Characters of a name that are told. None that a person has given is as long."""

# Control characters (ANSI sequences begin with one); signs that turn the direction of what follows;
# ends of lines that some programs know; tags, which nothing shows; what is no character at all.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0001-\U000e007f\ud800-\udfff]"
)

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")
# What a spreadsheet takes for a number computes nothing: a label -1 stays as it is.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def visible(text: Any, *, keep: str = "") -> str:
    r"""Write what a terminal would act on, or not show, as escapes that it shows.

    Parameters
    ----------
    text
        A name, or lines with names in them; anything else is written as text first.
    keep
        Characters that stay: ``"\n\t"`` of text that is laid out already.

    Returns
    -------
    str
        Without control characters, without what turns the direction of writing, one line where
        nothing is kept. Escapes are JSON's, so that JSON stays what it is.

    Examples
    --------
    >>> print(visible("tumour\x1b[2J"))
    tumour\u001b[2J
    """

    def escape(found: re.Match[str]) -> str:
        sign = found[0]
        if sign in keep:
            return sign
        units = sign.encode("utf-16-be", "surrogatepass").hex()
        return "".join(rf"\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _HIDDEN.sub(escape, str(text))


def shortened(text: str) -> str:
    """Cut a name that would fill the screen, and say how long it is.

    Examples
    --------
    >>> shortened("tumour"), len(shortened("t" * 1_000_000))
    ('tumour', 80)
    """
    if len(text) <= _MOST:
        return text
    end = f"... ({len(text):,} characters)"
    return text[: _MOST - len(end)] + end


def cell(text: Any) -> str:
    """Write a name for a cell of a table on a terminal: visible, and no longer than a line."""
    return shortened(visible(shortened(str(text))))


def named(names: Sequence[str], most: int = 50) -> str:
    """List the first names, and say how many more there are.

    Examples
    --------
    >>> named(["label", "center", "slide"], most=2)
    'label, center and 1 more'
    """
    more = len(names) - most
    return ", ".join(map(shortened, names[:most])) + (f" and {more:,} more" if more > 0 else "")


def guarded(cell: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula.

    Parameters
    ----------
    cell
        A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return, and is no
        number, gets one; so does a text that begins with apostrophes and one of these, for
        :func:`unguarded` to be right of every text.

    Examples
    --------
    >>> guarded("=1+1"), guarded("-1"), guarded("CD4-")
    ("'=1+1", '-1', 'CD4-')
    """
    if not _FORMULA.match(cell) or _NUMBER.fullmatch(cell):
        return cell
    return f"'{cell}"


def unguarded(text: str) -> str:
    """Take the apostrophe away that :func:`guarded` has put before a text.

    Examples
    --------
    >>> unguarded("'=1+1"), unguarded("'tis"), unguarded(guarded("'@"))
    ('=1+1', "'tis", "'@")
    """
    return text[1:] if _GUARDED.match(text) else text
