"""An S3 server on this machine, in a process of its own, behind a proxy that breaks requests."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.objects.proxy import FaultProxy, Faults

KEY, SECRET = "AKIATESTINGTESTING", "S3cr3tThatNobodyMaySee"


@dataclass(frozen=True)
class Bucket:
    """A bucket of one test.

    Attributes
    ----------
    options
        Storage options that lead through the proxy.
    direct
        Those that lead to the server, past the proxy.
    faults
        What the proxy breaks and counts.
    """

    name: str
    options: dict[str, Any]
    direct: dict[str, Any]
    faults: Faults

    def url(self, key: str) -> str:
        """URL of a key."""
        return f"s3://{self.name}/{key}"

    @property
    def cli(self) -> list[str]:
        """Arguments of a command that lead through the proxy."""
        return [part for name, value in self.options.items()
                for part in ("--storage-option", f"{name}={_as_text(value)}")]  # fmt: skip

    def filesystem(self) -> Any:
        """File system past the proxy, without a memory of what it listed."""
        import s3fs

        return s3fs.S3FileSystem(use_listings_cache=False, **self.direct)

    def keys(self, prefix: str = "") -> list[str]:
        """Keys that are there, without the bucket's name."""
        fs = self.filesystem()
        try:
            found = fs.find(f"{self.name}/{prefix}".rstrip("/"))
        except FileNotFoundError:
            return []
        return [str(one).removeprefix(f"{self.name}/") for one in found]

    def publish(self) -> None:
        """Let everybody read what is there."""
        fs = self.filesystem()
        fs.chmod(self.name, "public-read")
        fs.chmod(self.name, "public-read", recursive=True)

    def uploads(self) -> list[str]:
        """Keys of multipart uploads that were begun and not ended."""
        fs = self.filesystem()
        found = fs.call_s3("list_multipart_uploads", Bucket=self.name)
        return [one["Key"] for one in found.get("Uploads", [])]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, int]]:
    """Host and port of a moto server."""
    pytest.importorskip("s3fs", reason="s3fs is not installed: no object store is tested")
    pytest.importorskip("moto.server", reason="moto[server] is not installed: no S3 server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "AWS_DEFAULT_REGION": "us-east-1"},
    )  # fmt: skip
    try:
        for _ in range(600):
            assert server.poll() is None, "the S3 server has ended"
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                connection.request("GET", "/moto-api/")
                connection.getresponse().read()
                break
            except OSError:
                time.sleep(0.1)
            finally:
                connection.close()
        else:
            pytest.fail("the S3 server did not answer within a minute")
        yield "127.0.0.1", port
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="session")
def s3_proxy(s3_server: tuple[str, int]) -> Iterator[FaultProxy]:
    """Proxy in front of the server; clients are closed at its end."""
    proxy = FaultProxy(*s3_server)
    try:
        yield proxy
    finally:
        close_clients()
        proxy.close()


def close_clients() -> None:
    """Close the connections that s3fs keeps open for as long as its process lives."""
    import s3fs
    from fsspec.asyn import sync
    from zarr.core.sync import _get_loop

    for fs in list(s3fs.S3FileSystem._cache.values()):
        if fs._s3 is not None:
            # Those that are asynchronous live in the loop of zarr.
            loop = _get_loop() if fs.asynchronous else fs.loop
            sync(loop, fs._s3.__aexit__, None, None, None)
            fs._s3 = None
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(
    s3_server: tuple[str, int], s3_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    """Make an empty bucket; nothing is broken until a test says so."""
    # Nobody's own credentials, and no delay of botocore's after a request that failed.
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    host, port = s3_server
    common = {"key": KEY, "secret": SECRET}
    direct = {**common, "endpoint_url": f"http://{host}:{port}"}
    made = Bucket(
        f"b{uuid.uuid4().hex[:16]}", {**common, "endpoint_url": s3_proxy.url}, direct,
        s3_proxy.faults,
    )  # fmt: skip
    s3_proxy.faults.clear()
    made.filesystem().mkdir(made.name)
    yield made
    s3_proxy.faults.clear()
