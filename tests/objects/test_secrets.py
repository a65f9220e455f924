"""Credentials: they open what they are for, and are seen nowhere."""

from __future__ import annotations

import ast
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import cloudpickle
import numpy as np
import pytest
from click.testing import CliRunner

import croma_dask as cd
from croma_dask.cli import main
from croma_dask.cli_options import storage_option
from croma_dask.cohort import secrets
from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import StoreError
from croma_dask.tasks import run_graph
from tests.objects.conftest import KEY, SECRET, Bucket

N = 60


def write(bucket: Bucket) -> str:
    x = np.random.default_rng(0).standard_normal((N, 4)).astype("f4")
    frame = {
        "sample_id": [f"s{i}" for i in range(N)],
        "label": [f"l{i % 2}" for i in range(N)],
        "center": [f"c{i // 2 % 3}" for i in range(N)],
        "group_id": [f"g{i // 4}" for i in range(N)],
    }
    return cd.write_cohort(
        bucket.url("c.zarr"), x, frame, chunk_rows=16, storage_options=bucket.options
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pass-word@host/a/c.zarr", "https://me:***@host/a/c.zarr"),
        ("ftp://:pass-word@host:21/c.zarr", "ftp://:***@host:21/c.zarr"),
        (
            "https://host/x.npy?X-Amz-Credential=AKIA%2F1&X-Amz-Date=2026&X-Amz-Signature=pass-word",
            "https://host/x.npy?X-Amz-Credential=***&X-Amz-Date=2026&X-Amz-Signature=***",
        ),
        ("https://a.blob.host/c/x.npy?sv=2024&sig=pass-word", "https://a.blob.host/c/x.npy?sv=2024&sig=***"),
        ("s3://bucket/a@b:c/x.zarr", "s3://bucket/a@b:c/x.zarr"),
        ("simplecache::s3://bucket/x.zarr", "simplecache::s3://bucket/x.zarr"),
    ],
)  # fmt: skip
def test_url__is_shown_without_what_opens_it(url: str, shown: str) -> None:
    place = Location.of(url, {"secret": "pass-word"})
    assert place.url == str(place) == secrets.redact(f"{url}") == shown
    assert place.opening_url == url
    for text in (repr(place), repr(pickle.dumps(place)), repr(StoredCohort(place))):
        assert "pass-word" not in text
    copy = pickle.loads(pickle.dumps(place))
    assert copy == place
    assert copy.storage_options == {"secret": "pass-word"}
    # Places inside of it, and the shown URL itself, are opened by the same.
    assert Location.of(shown).opening_url == url
    path, mark, query = url.partition("?")
    assert place.joined("x").opening_url == f"{path}/x{mark}{query}"
    assert place.joined("x").parent == place


def test_two_signatures_of_one_url__are_two_places() -> None:
    one = Location.of("https://host/x.npy?sig=first")
    other = Location.of("https://host/x.npy?sig=second")
    assert one.url == other.url
    assert one != other
    assert one.opening_url == "https://host/x.npy?sig=first"
    assert other.opening_url == "https://host/x.npy?sig=second"


def test_stars_of_a_name__stay() -> None:
    plain = Location.of("s3://b/a***b.zarr")
    assert plain.opening_url == "s3://b/a***b.zarr"
    both = Location.of("https://me:secret@host/a***b.zarr")
    assert both.url == "https://me:***@host/a***b.zarr"
    assert both.opening_url == "https://me:secret@host/a***b.zarr"


class Opaque:
    """An option that shows nothing of itself."""

    def __repr__(self) -> str:
        return "opaque"


def test_options_that_look_alike__are_not_mixed_up() -> None:
    one, other = Opaque(), Opaque()
    assert Location.of("s3://b/x", {"session": one}) != Location.of("s3://b/x", {"session": other})
    assert Location.of("s3://b/x", {"session": other}).storage_options["session"] is other


def test_equal_options__are_one_token_that_tells_nothing() -> None:
    one = Location.of("s3://b/x", {"key": KEY, "secret": SECRET})
    other = Location.of("s3://b/x", {"secret": SECRET, "key": KEY})
    assert one == other
    assert len(one.token) == 16
    assert Location.of("s3://b/x", {"key": KEY, "secret": "other"}) != one
    assert Location.of("s3://b/x").token == ""


def test_unknown_token__says_what_to_do() -> None:
    with pytest.raises(StoreError, match="does not know the storage options that open it"):
        StoredCohort(Location("s3://b/x.zarr", "f" * 16)).n_tiles  # noqa: B018
    with pytest.raises(StoreError, match="does not know"):
        Location("https://nobody:***@host/x").about()


def test_exported_options__cannot_be_read_in_a_log_of_messages() -> None:
    Location.of("s3://b/x", {"secret": SECRET, "client_kwargs": {"aws_session_token": SECRET}})
    sent = pickle.dumps(secrets.exported())
    assert SECRET.encode() not in sent
    found = [options for _, options in pickle.loads(sent).values()]
    assert {"secret": SECRET, "client_kwargs": {"aws_session_token": SECRET}} in found
    assert all(type(one["secret"]) is str for one in found if "secret" in one)


def test_dataset_and_graph__carry_no_secret(bucket: Bucket) -> None:
    cohort = cd.open_cohort(write(bucket), storage_options=bucket.options)
    for sent in (cloudpickle.dumps(cohort), cloudpickle.dumps(dict(cohort.__dask_graph__()))):
        assert SECRET.encode() not in sent
        assert KEY.encode() not in sent
    assert SECRET not in repr(cohort) + repr(cohort.attrs) + cohort._repr_html_()
    again = pickle.loads(cloudpickle.dumps(cohort))
    assert again.embedding.variable.compute().shape == (N, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::croma_dask.errors.SupportWarning")
def test_logs_and_results__carry_no_secret(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("croma_dask", "distributed", "fsspec", "s3fs", "zarr", "botocore", "aiobotocore"):
        caplog.set_level(logging.DEBUG, name)
    bucket.faults.at_random(0.05)
    result = cd.score(
        write(bucket), confounder="center", k_candidates=[5], m=2, quiet=True,
        storage_options=bucket.options,
    )  # fmt: skip
    for ending in ("zarr", "nc", "csv", "json"):
        cd.results.save(result, bucket.url(f"r.{ending}"), storage_options=bucket.options)
    cd.report(bucket.url("r.zarr"), bucket.url("p.html"), storage_options=bucket.options, n_draws=5)
    bucket.faults.clear()
    assert SECRET not in repr(result)
    fs = bucket.filesystem()
    for key in bucket.keys():
        content = fs.cat_file(f"{bucket.name}/{key}")
        assert SECRET.encode() not in content, key
        assert KEY.encode() not in content, key
    assert len(caplog.records) > 100
    assert not [r for r in caplog.records if SECRET in r.getMessage()]


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::croma_dask.errors.SupportWarning")
def test_workers__are_given_options_apart_from_the_graph(
    bucket: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from distributed import Client, LocalCluster

    caplog.set_level(logging.DEBUG, "distributed")
    url = write(bucket)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None,
            local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        cohort = cd.open_cohort(url, storage_options=bucket.options)
        expected = StoredCohort(url, bucket.options).read_tiles(0, N)
        assert np.array_equal(cohort.embedding.variable.compute(), expected)
        # A worker that comes later is told, too.
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        found = client.run(lambda place: place.read_bytes("zarr.json") is not None,
                           Location.of(url, bucket.options))  # fmt: skip
        assert list(found.values()) == [True, True]
        # Options that come up later are sent before a graph is.
        others = StoredCohort(url, {**bucket.options, "default_block_size": 1 << 20})
        graph = {"croma-rows-1": (StoredCohort.read_tiles, others, 0, N)}
        (found,) = run_graph(graph, ["croma-rows-1"], client=client)
        assert np.array_equal(found, expected)
        result = cd.score(others, confounder="center", k_candidates=[5], m=2, client=client)
        assert "RI" in result.children

        def seen(dask_scheduler: Any) -> str:
            keys = [*map(str, dask_scheduler.tasks), *dask_scheduler.task_prefixes]
            return repr([keys, dask_scheduler.worker_plugins])

        shown = client.run_on_scheduler(seen)
        assert "croma-dask storage options" in shown
        assert SECRET not in shown
        logs = repr([client.get_worker_logs(), client.get_scheduler_logs()])
        assert SECRET not in logs
    assert not [r for r in caplog.records if SECRET in r.getMessage()]


def test_storage_options_of_a_command__are_values_and_mappings() -> None:
    @click.command()
    @storage_option
    def command(storage_options: dict[str, Any]) -> None:
        click.echo(repr(storage_options))

    def told(*options: str) -> str:
        given = [part for option in options for part in ("--storage-option", option)]
        return CliRunner().invoke(command, given).output

    given = ("anon=false", "key=007", "a.b.c=5", "a.b.d=x", "endpoint_url=http://h:1/")
    assert ast.literal_eval(told(*given)) == {
        "anon": False, "key": "007", "a": {"b": {"c": 5, "d": "x"}}, "endpoint_url": "http://h:1/",
    }  # fmt: skip
    assert "both as a value and with parts" in told("a=1", "a.b=2")
    assert "both as a value and with parts" in told("a.b=2", "a=1")
    assert "given twice" in told("a=1", "a=2")


@pytest.mark.parametrize("option", ["no_such_option=1", "client_kwargs=5"])
def test_wrong_option__is_what_the_message_is_about(option: str) -> None:
    done = CliRunner().invoke(main, ["info", "s3://b/x.zarr", "--storage-option", option])
    assert done.exit_code == 2
    assert "its storage options may not be what the file system takes" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("user", ["me", "me@lab.org", ""])
def test_password__after_any_user_is_hidden(user: str) -> None:
    place = Location.of(f"https://{user}:s3cr@t@host:8080/a@b/c.zarr")
    assert place.url == f"https://{user}:***@host:8080/a@b/c.zarr"
    assert place.opening_url == f"https://{user}:s3cr@t@host:8080/a@b/c.zarr"


@pytest.mark.parametrize("password", ["pa/ss", "pa?ss", "pa#ss", "pa ss"])
def test_password__that_ends_the_host_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(StoreError, match="it is not shown.*%2F") as refused:
        Location.of(f"https://me:{password}@host/c.zarr")
    assert "pa" not in str(refused.value).partition("password")[0]
    assert "ss@" not in str(refused.value)


def test_port__is_no_password() -> None:
    for url in ("https://host:8080/a@b/c.zarr", "http://[::1]:80/x@y", "s3://b/a:b/c@d"):
        assert Location.of(url).url == url


def test_options__are_copied_and_change_with_nobody() -> None:
    kwargs = {"endpoint_url": "http://one"}
    one = Location.of("s3://b/x", {"client_kwargs": kwargs})
    kwargs["endpoint_url"] = "http://two"
    other = Location.of("s3://b/x", {"client_kwargs": kwargs})
    assert one != other
    assert one.storage_options == {"client_kwargs": {"endpoint_url": "http://one"}}
    one.storage_options["client_kwargs"]["endpoint_url"] = "http://three"
    assert one.storage_options == {"client_kwargs": {"endpoint_url": "http://one"}}


def test_options__of_many_threads_at_once() -> None:
    def make(thread: int) -> None:
        for number in range(300):
            options = {"key": f"{thread}-{number}"}
            assert Location.of("s3://b/x", options).storage_options == options

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(8)))


def test_place_inside__of_a_signed_url_that_is_no_http_is_refused() -> None:
    place = Location.of("abfs://box/c.zarr?sig=abc").joined("zarr.json")
    with pytest.raises(StoreError, match="cannot be added to a URL with a signature") as refused:
        _ = place.opening_url
    assert "abc" not in str(refused.value)


def test_index_beside_a_store__is_opened_by_what_opens_that() -> None:
    store = Location.of("https://me:secret@host/c.zarr")
    assert store.renamed("https://me:***@host/c.ivf.zarr").opening_url == (
        "https://me:secret@host/c.ivf.zarr"
    )


def test_words_of_other_libraries__show_no_secret() -> None:
    done = CliRunner().invoke(main, ["info", "s3://user:hunter2@lab/a.zarr"])
    assert done.exit_code == 2
    assert "cannot be read" in done.output
    assert "hunter2" not in done.output
    Location.of("s3://b/x", {"client_kwargs": {"aws_secret_access_key": "wJalrXUt"}})
    assert secrets.scrub("bad key wJalrXUt, s3://me:word@b") == "bad key ***, s3://me:***@b"


def test_profile_that_is_not_there__is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nonexist")
    done = CliRunner().invoke(main, ["info", "s3://lab/profile.zarr"])
    assert done.exit_code == 2
    assert "nonexist" in done.output
