"""Options that several commands share."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from croma_dask.outward import visible

__all__ = [
    "cluster_options",
    "cohorts_of",
    "connected",
    "key_values",
    "say",
    "say_written",
    "scratch_options",
    "silence_log",
    "split_list",
    "storage_option",
    "tell_leaning",
    "store_arguments",
]

F = TypeVar("F", bound=Callable[..., Any])


def say(text: object, *, err: bool = False) -> None:
    """Print what may hold names from data: nothing in them reaches the terminal but as text."""
    click.echo(visible(text, keep="\n\t"), err=err)


def say_written(place: str) -> None:
    """Say where a result is."""
    from croma_dask.cohort.secrets import redact

    say(f"\nwritten: {redact(place)}")


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
        if name in pairs:
            raise click.BadParameter(f"{name!r} is given twice")
        pairs[name] = text
    return pairs


_TEXTS = {"account_key", "account_name", "key", "password", "secret", "token", "username"}
"""Storage options that are texts, whatever they look like."""


def storage_values(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> dict[str, Any]:
    """Read storage options: JSON where it is some, otherwise text; ``a.b=1`` is of a mapping."""
    found: dict[str, Any] = {}
    for name, text in key_values(ctx, param, values).items():
        *outer, last = name.split(".")
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise click.BadParameter(f"{part!r} is given both as a value and with parts")
        if last in inner:
            raise click.BadParameter(f"{last!r} is given both as a value and with parts")
        inner[last] = text if last in _TEXTS else _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=storage_values,
    help="Option of the file system of a URL, for example endpoint_url=http://localhost:9000 or"
    " anon=true; parts by a dot: client_kwargs.region_name=eu-central-1. Secrets are better left"
    " to the environment: other users of a machine see what a command is given.",
)

_CLUSTER = [
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Start this many worker processes on this machine instead of threads.",
    ),
    click.option(
        "--threads-per-worker",
        type=click.IntRange(min=1),
        help="Tasks that each of these works on at once. Default: 1.",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Use the cluster of this Dask scheduler: its address, or its scheduler file.",
    ),
    click.option(
        "--dashboard", is_flag=True, help="Say at which address the cluster's dashboard is."
    ),
]

_SCRATCH = [
    click.option(
        "--scratch",
        metavar="FOLDER",
        help="Folder for what a long run keeps on the way. Default: beside the output.",
    ),
    click.option(
        "--resume/--no-resume",
        default=True,
        show_default=True,
        help="Go on from what the same run has left there, or delete that and start afresh.",
    ),
    click.option(
        "--keep-scratch", is_flag=True, help="Leave it there when the run has ended well."
    ),
]

_STORES = [
    click.argument("stores", nargs=-1, required=True, metavar="STORE..."),
    click.option(
        "--name", "names", multiple=True, metavar="NAME",
        help="Name of a model, once for each store. Default: the store's, without .zarr.",
    ),
]  # fmt: skip


def _added(options: Sequence[Callable[[F], F]], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def cluster_options(function: F) -> F:
    """Add the options that say where a command's tasks run; read them with `connected`."""
    return _added(_CLUSTER, function)


def store_arguments(function: F) -> F:
    """Add the stores, and what their models are called; read them with `cohorts_of`."""
    return _added(_STORES, function)


def cohorts_of(
    stores: Sequence[str], names: Sequence[str], storage_options: dict[str, str]
) -> Any:  # fmt: skip
    """One store is a cohort, several (or one with a name) are a panel."""
    from croma_dask.cohort.store import StoredCohort

    cohorts = [StoredCohort(store, storage_options) for store in stores]
    if not names:
        return cohorts[0] if len(cohorts) == 1 else cohorts
    if len(names) != len(stores):
        raise click.UsageError(
            f"--name names each store, in their order: {len(stores)} stores, {len(names)} names"
        )
    if len(set(names)) < len(names):
        raise click.UsageError(f"--name: a name is given twice ({', '.join(names)})")
    return dict(zip(names, cohorts, strict=True))


def scratch_options(function: F) -> F:
    """Add the options that say what becomes of what a run keeps on the way."""
    return _added(_SCRATCH, function)


def tell_leaning(result: Any) -> None:
    """Warn of values that one group decides; reads the values of the samples."""
    from croma_dask.breakdown.leaning import leaning_groups

    for one in leaning_groups(result):
        model = f"{one.model}: " if one.model else ""
        say(f"warning: {model}{one}", err=True)


def silence_log() -> None:
    """Keep the log to errors, for this command alone: in a process that goes on it is another's."""
    log = logging.getLogger("croma_dask")
    click.get_current_context().call_on_close(functools.partial(log.setLevel, log.level))
    log.setLevel(logging.ERROR)


@contextlib.contextmanager
def connected(options: dict[str, Any]) -> Iterator[Any]:
    """Take the options of the cluster out of a command's, and yield its client, if any."""
    from croma_dask.cluster import connect

    dashboard = options.pop("dashboard")
    given = {name: options.pop(name) for name in ("workers", "scheduler", "threads_per_worker")}
    if dashboard and not (given["workers"] or given["scheduler"]):
        raise click.UsageError("--dashboard is a cluster's: give --workers or --scheduler")
    with connect(**given, memory=options.get("memory")) as client:
        if dashboard:
            say(f"dashboard: {client.dashboard_link}", err=True)
        yield client
