"""An HTTP proxy in front of an object store that counts requests, and breaks some of them."""

from __future__ import annotations

import http.client
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

KINDS = ("500", "503", "drop", "lost", "cut")
"""500, 503: answers in place of the store's; drop: the connection ends before the request reaches
it; lost: the store has done it, and the answer is lost; cut: the answer ends in the middle.
Besides: slow (waits before it answers), 403, 404, 429, and STATUS:CODE."""

_CODES = {
    "403": (403, "AccessDenied"),
    "404": (404, "NoSuchKey"),
    "429": (429, "TooManyRequests"),
    "500": (500, "InternalError"),
    "503": (503, "SlowDown"),
}


@dataclass(frozen=True)
class Request:
    """One request that came in: LIST and MULTI (multipart uploads) are verbs of their own."""

    verb: str
    key: str
    fault: str | None


@dataclass
class _Rule:
    kind: str
    verb: str
    key: re.Pattern[str]
    times: int


@dataclass
class Faults:
    """Which requests go wrong.

    Attributes
    ----------
    requests
        All that came in, in their order.
    """

    rate: float = 0.0
    kinds: Sequence[str] = KINDS
    seconds: float = 0.2
    requests: list[Request] = field(default_factory=list)
    _rules: list[_Rule] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(0))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def at_random(self, rate: float, kinds: Sequence[str] = KINDS, seed: int = 0) -> None:
        """Break this share of all requests."""
        self.rate, self.kinds, self._random = rate, kinds, random.Random(seed)

    def add(self, kind: str, verb: str = ".*", key: str = ".*", times: int = 1) -> None:
        """Break the next requests of a verb whose key matches; with times=-1 all of them."""
        self._rules.append(_Rule(kind, verb, re.compile(key), times))

    def clear(self) -> None:
        """Break nothing, and forget what was counted."""
        with self._lock:
            self.rate = 0.0
            self._rules.clear()
            self.requests.clear()

    def counts(self) -> Counter[str]:
        """Requests by verb."""
        return Counter(request.verb for request in self.requests)

    def broken(self) -> Counter[str]:
        """Requests that were broken, by kind."""
        return Counter(request.fault for request in self.requests if request.fault)

    def draw(self, verb: str, key: str) -> str | None:
        """Say what becomes of a request, and note it."""
        with self._lock:
            kind = None
            for rule in self._rules:
                if rule.times and re.fullmatch(rule.verb, verb) and rule.key.search(key):
                    rule.times -= 1
                    kind = rule.kind
                    break
            else:
                if self.rate and self._random.random() < self.rate:
                    kind = self._random.choice(list(self.kinds))
            self.requests.append(Request(verb, key, kind))
            return kind


class FaultProxy:
    """The proxy, in threads of this process."""

    def __init__(self, host: str, port: int) -> None:
        self.faults = Faults()
        faults = self.faults

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def handle_any(self) -> None:
                body = self._body()
                verb, key = _named(self.command, self.path)
                kind = faults.draw(verb, key)
                if kind == "drop":
                    self._hang_up()
                    return
                if kind == "slow":
                    time.sleep(faults.seconds)
                if kind is not None and (kind in _CODES or ":" in kind):
                    number, _, name = kind.partition(":")
                    status, code = (int(number), name) if name else _CODES[kind]
                    text = (
                        f"<?xml version='1.0'?><Error><Code>{code}</Code>"
                        f"<Message>injected</Message></Error>"
                    ).encode()
                    self._answer(status, [("Content-Type", "application/xml")], text)
                    return
                upstream = http.client.HTTPConnection(host, port, timeout=60)
                try:
                    headers = {
                        k: v
                        for k, v in self.headers.items()
                        if k.lower() not in ("transfer-encoding", "connection", "expect")
                    }
                    headers["Content-Length"] = str(len(body))
                    upstream.request(self.command, self.path, body, headers)
                    answer = upstream.getresponse()
                    content = answer.read()
                    status, found = answer.status, answer.getheaders()
                finally:
                    upstream.close()
                if kind == "lost":
                    self._hang_up()
                    return
                self._answer(status, found, content, cut=kind == "cut")

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def _answer(
                self, status: int, headers: Sequence[tuple[str, str]], content: bytes,
                cut: bool = False,
            ) -> None:  # fmt: skip
                is_head = self.command == "HEAD"
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() == "content-length" and not is_head:
                        continue
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                if not is_head:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if is_head:
                    if cut:
                        self._hang_up()
                    return
                self.wfile.write(content[: len(content) // 2] if cut else content)
                if cut:
                    self.wfile.flush()
                    self._hang_up()

            def _hang_up(self) -> None:
                self.close_connection = True
                try:
                    self.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that went away

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _named(command: str, path: str) -> tuple[str, str]:
    """Verb and key of a request."""
    parts = urlsplit(path)
    key = unquote(parts.path).lstrip("/")
    query = parse_qs(parts.query, keep_blank_values=True)
    if command == "GET" and "list-type" in query:
        return "LIST", f"{key.rstrip('/')}/{query.get('prefix', [''])[0]}"
    if "uploads" in query or "uploadId" in query:
        return "ABORT" if command == "DELETE" else "MULTI", key
    return command, key
