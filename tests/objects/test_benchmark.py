"""The embedding benchmark with files, folders and stores at URLs, and its tables there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import croma_dask as cd
from croma_dask.cli import main
from croma_dask.cohort import retrying
from croma_dask.embedding.inputs import expand_paths
from croma_dask.errors import SchemaError, StoreError
from tests.helpers.samples import cells, write_h5ad
from tests.objects.conftest import SECRET, Bucket

QUICK = ("--batch-key", "batch_id", "--metrics", "ASW,BRAS")
Run = Callable[..., Any]


@pytest.fixture
def run(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command with the bucket's options, its temporary files seen; give its result."""
    monkeypatch.setattr(retrying, "WAIT", 0.01)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)

    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, [*arguments, *bucket.cli])
        assert result.exit_code == code, result.output
        assert SECRET not in result.output
        assert "Traceback" not in result.output
        return result.output

    return run


def embeddings(folder: Path) -> Path:
    """Two methods, two samples each: files and stores."""
    for number, (method, sample) in enumerate(
        (("scVI", "liver"), ("scVI", "lung"), ("PCA", "liver"), ("PCA", "lung"))
    ):
        x, obs = cells(number)
        place = folder / method
        if sample == "liver":
            write_h5ad(place / "liver.h5ad", x, obs)
        else:
            place.mkdir(parents=True, exist_ok=True)
            cd.write_cohort(place / "lung.zarr", x, obs.assign(
                sample_id=obs.index, group_id=obs.index, label=obs["cell_type"]
            ).reset_index(drop=True))  # fmt: skip
    (folder / "scVI" / "notes.txt").write_text("not an embedding")
    return folder


def put(bucket: Bucket, folder: Path) -> None:
    bucket.filesystem().put(str(folder), f"{bucket.name}/in", recursive=True)


def tables(bucket: Bucket) -> dict[str, bytes]:
    """Tables at the URL, and the record beside them."""
    fs = bucket.filesystem()
    return {
        key.removeprefix("out/"): fs.cat_file(f"{bucket.name}/{key}")
        for key in bucket.keys("out")
    }  # fmt: skip


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip


def check_same(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    assert sorted(found) == sorted(expected)
    assert found == expected


def left(tmp_path: Path) -> list[str]:
    """Temporary files that nobody has deleted."""
    return [str(path) for path in (tmp_path / "temporary").rglob("*") if path.is_file()]


def test_benchmark__of_a_file_at_a_url_to_a_url(run: Run, bucket: Bucket, tmp_path: Path) -> None:
    x, obs = cells(0)
    path = write_h5ad(tmp_path / "M" / "liver.h5ad", x, obs)
    cheap = ("--metrics", "ARI", "--clustering", "kmeans")
    run("benchmark", str(path), *cheap, "--output-dir", str(tmp_path / "here"), "-q")
    bucket.filesystem().put(str(path), f"{bucket.name}/M/liver.h5ad")
    bucket.faults.add("cut", verb="GET", key="liver.h5ad")
    bucket.faults.add("503", verb="PUT", key="record.json")
    command = ("benchmark", bucket.url("M/liver.h5ad"), *cheap, "--output-dir", bucket.url("out"))
    said = run(*command)
    assert bucket.faults.broken() == {"cut": 1, "503": 1}
    assert f"tables: {bucket.url('out/benchmark')}" in said
    there = tables(bucket)
    check_same(there, files(tmp_path / "here"))
    assert SECRET.encode() not in b"".join(there.values())
    # What is done is not scored again, and nothing is written but the combined tables.
    before = len(bucket.faults.requests)
    run(*command, "-q")
    again = bucket.faults.requests[before:]
    written = [r.key for r in again if r.verb == "PUT" and ".croma-dask-" not in r.key]
    assert written
    assert all(re.search(r"M_bio_conservation_metrics_(long|wide).csv$", key) for key in written)
    check_same(tables(bucket), there)
    assert not left(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["in", "in/*", "in/scVI in/PCA", "in/*/li*.h5ad in/*/*.zarr"])
def test_benchmark__of_folders_and_patterns(
    run: Run, bucket: Bucket, tmp_path: Path, what: str
) -> None:
    folder = embeddings(tmp_path / "in")
    run("benchmark", str(folder / "scVI"), str(folder / "PCA"), *QUICK, "--output-dir",
        str(tmp_path / "here"), "-q")  # fmt: skip
    put(bucket, folder)
    bucket.faults.at_random(0.05)
    paths = [bucket.url(one) for one in what.split()]
    if what == "in":
        # A folder of folders holds no embedding of its own, here as there.
        assert "no .h5ad file and no cohort store" in run(
            "benchmark", *paths, *QUICK, "--output-dir", bucket.url("out"), code=2
        )
        return
    run("benchmark", *paths, *QUICK, "--output-dir", bucket.url("out"), "-q")
    bucket.faults.at_random(0.0)
    there = tables(bucket)
    check_same(there, files(tmp_path / "here"))
    ranks = run("rank", bucket.url("out/benchmark/*_wide.csv"), "--draws", "100")
    here = CliRunner().invoke(main, [
        "rank", *map(str, sorted((tmp_path / "here" / "benchmark").glob("*_wide.csv"))),
        "--draws", "100",
    ])  # fmt: skip
    assert ranks == here.output
    assert not left(tmp_path)


class Stopped(Exception):
    """Stands for a process that ends."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", ["", "/lung_scVI.csv", "lung_scVI/record.json", "lung_scVI/silhouette.npy"]
)
def test_benchmark__goes_on_at_a_url(
    run: Run, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """A run that ended while it scored the second input, or while it wrote its tables."""
    folder = embeddings(tmp_path / "in")
    run("benchmark", str(folder / "scVI"), *QUICK, "--output-dir", str(tmp_path / "here"), "-q")
    put(bucket, folder)
    command = ("benchmark", bucket.url("in/scVI"), *QUICK, "--output-dir", bucket.url("out"), "-q")
    scored: list[str] = []
    import croma_dask.embedding.run as module

    real = module.evaluate_embedding

    def evaluate(*args: Any, **options: Any) -> Any:
        scored.append(options["dataset"])
        if len(scored) == 2 and not key:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(module, "evaluate_embedding", evaluate)
    if key:
        with monkeypatch.context() as patch:
            patch.setattr(retrying, "TRIES", 1)
            bucket.faults.add("403", verb="PUT", key=f"{re.escape(key)}$", times=-1)
            assert "cannot be written: access is denied" in run(*command, code=2)
            assert bucket.faults.broken()["403"] > 0
            bucket.faults.clear()
    else:
        run(*command, code=130)
    assert scored == ["liver", "lung"]
    bucket.faults.at_random(0.05)
    run(*command)
    bucket.faults.at_random(0.0)
    assert scored == ["liver", "lung", "lung"], "the first input was scored again"
    check_same(tables(bucket), files(tmp_path / "here"))
    assert not left(tmp_path)


@pytest.mark.slow
def test_benchmark__of_another_group_of_metrics_drops_what_is_stale(
    run: Run, bucket: Bucket, tmp_path: Path
) -> None:
    """Tables of other data are deleted there as they are here."""
    x, obs = cells(0)
    path = write_h5ad(tmp_path / "M" / "liver.h5ad", x, obs)

    def both(*how: str) -> None:
        bucket.filesystem().put(str(path), f"{bucket.name}/M/liver.h5ad")
        for place, out in (
            (str(path), str(tmp_path / "here")), (bucket.url("M/liver.h5ad"), bucket.url("out")),
        ):  # fmt: skip
            run("benchmark", place, "--batch-key", "batch_id", *how, "--output-dir", out, "-q")
        check_same(tables(bucket), files(tmp_path / "here"))

    both("--metrics", "ASW,ARI,BRAS", "--clustering", "kmeans")
    assert any(name.endswith("_kmeans_labels.tsv") for name in tables(bucket))
    write_h5ad(path, x + 1.0, obs)
    both("--metrics", "BRAS", "--clustering", "kmeans")
    assert not any("bio_conservation" in name for name in tables(bucket))


@pytest.mark.slow
def test_benchmark__says_what_is_wrong_at_a_url(run: Run, bucket: Bucket, tmp_path: Path) -> None:
    bucket.filesystem().pipe_file(f"{bucket.name}/M/broken.h5ad", b"nothing of the kind")
    bucket.filesystem().pipe_file(f"{bucket.name}/M/x.csv", b"a,b\n")
    out = ("--output-dir", bucket.url("out"))
    for key, message in (
        ("M/none.h5ad", "M/none.h5ad"),
        ("none", "there is no s3://"),
        ("M/x.csv", "expected an .h5ad file, a cohort store, or a folder of these"),
        ("M/*.txt", "nothing matches; expected an .h5ad file or a cohort store"),
        ("M/*.csv", "none of 1 matches is an .h5ad file or a cohort store"),
        ("M/broken.h5ad", "M/broken.h5ad"),
    ):
        said = run("benchmark", bucket.url(key), *QUICK, *out, code=2)
        assert message in said, said
        assert "temporary" not in said, "a path of a copy tells nobody anything"
        assert len(said.splitlines()) == 1
    x, obs = cells(0)
    path = write_h5ad(tmp_path / "M" / "liver.h5ad", x, obs)
    bucket.faults.add("403", verb="PUT", times=-1)
    said = run("benchmark", str(path), *QUICK, *out, code=2)
    assert re.search(r"s3://.*/out/benchmark/.* cannot be written: access is denied", said), said
    assert bucket.keys("out") == []
    assert not left(tmp_path)


@pytest.mark.slow
def test_embedding_benchmark__of_stores_at_urls(bucket: Bucket, tmp_path: Path) -> None:
    folder = embeddings(tmp_path / "in")
    put(bucket, folder)
    how: dict[str, Any] = {"batch": "batch_id", "metrics": ["ASW", "BRAS"], "quiet": True}
    places = [f"in/{method}/lung.zarr" for method in ("scVI", "PCA")]
    here = cd.embedding_benchmark([str(tmp_path / one) for one in places], **how)
    bucket.faults.at_random(0.05)
    urls = [bucket.url(one) for one in places]
    there = cd.embedding_benchmark(urls, storage_options=bucket.options, **how)
    planned = cd.plan_embedding_benchmark(
        urls, storage_options=bucket.options, batch="batch_id", metrics=["ASW", "BRAS"]
    )
    bucket.faults.at_random(0.0)
    xr.testing.assert_identical(there.drop_attrs(), here.drop_attrs())
    assert SECRET not in str(there.attrs) + str(planned)
    ranks = cd.rank_embeddings(there)
    there.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    bucket.filesystem().put(str(tmp_path / "b.nc"), f"{bucket.name}/b.nc")
    found = cd.rank_embeddings(bucket.url("b.nc"), storage_options=bucket.options)
    np.testing.assert_array_equal(found.mean_rank, ranks.mean_rank)


@pytest.mark.slow
def test_expand_paths__lists_in_the_order_of_names(bucket: Bucket) -> None:
    fs = bucket.filesystem()
    for key in ("in/b/y.h5ad", "in/a/x.h5ad", "in/a/.hidden.h5ad", "in/a/deep/z.h5ad", "in/a/t.csv",
                "in/a/"):  # fmt: skip
        fs.pipe_file(f"{bucket.name}/{key}", b"")
    fs.pipe_file(f"{bucket.name}/in/a/r.zarr/zarr.json", b'{"attributes": {"format": "other"}}')
    fs.pipe_file(
        f"{bucket.name}/in/a/c.zarr/zarr.json", b'{"attributes": {"format": "croma-dask cohort"}}'
    )

    def found(*keys: str) -> list[str]:
        urls = [bucket.url(key) for key in keys]
        inputs = expand_paths(urls, storage_options=bucket.options)
        return [one.path.removeprefix(bucket.url("")) for one in inputs]

    assert found("in/a") == ["in/a/c.zarr", "in/a/x.h5ad"]
    assert found("in/*/") == ["in/a/c.zarr", "in/a/x.h5ad", "in/b/y.h5ad"]
    assert found("in/**/*.h5ad") == [
        "in/a/.hidden.h5ad", "in/a/deep/z.h5ad", "in/a/x.h5ad", "in/b/y.h5ad"
    ]  # fmt: skip
    with pytest.raises(SchemaError, match="there is no s3://.*/nowhere"):
        found("nowhere")
    bucket.faults.add("403", verb="LIST", times=-1)
    with pytest.raises(StoreError, match="cannot be read: access is denied"):
        found("in/b")
