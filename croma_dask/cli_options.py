"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence

import click

__all__ = ["key_values", "split_list", "storage_option"]


def split_list(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[str, ...]:
    """Read an option that is given several times, or once with commas, or both."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def key_values(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Read an option of the form ``name=value`` that is given several times."""
    pairs = {}
    for value in values:
        name, found, text = value.partition("=")
        if not found:
            raise click.BadParameter(f"{value!r}; expected NAME=VALUE")
        pairs[name] = text
    return pairs


storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=key_values,
    help="Option of the file system of a URL, for example endpoint_url=http://localhost:9000.",
)
