"""Serves the live page of a run, to this machine alone.

Everything is under a secret path, which is compared in constant time. The name in the Host header must be this
machine's own, so that a foreign site whose name resolves to this machine reads nothing. The page may load nothing from
outside. A refusal is one plain line. All pages share one reading of the run folder, which takes a small part of one
core by construction: the longer it takes, the rarer it is.
"""

import asyncio
import json
import secrets
import socket
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager, suppress

import uvicorn
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from shoal.watch.address import HOST
from shoal.watch.page import LivePage, files

NAMES = (HOST, "localhost")
"""Of this machine in a Host header; the port differs behind an SSH tunnel."""
MOST_STREAMS = 16
"""Pages that may follow the run at the same time."""
PERIOD_S, SHARE = 1.0, 0.01
"""The shortest time between two readings, and the most of a core that they take."""
BEAT_S = 15.0
"""Between two signs of life; without them a page that is closed would not be noticed."""
STOP_S = 2.0
SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src-elem 'self'; "
    "style-src-attr 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Served:
    """The page as an ASGI application."""

    def __init__(self, page: LivePage, token: str) -> None:
        self._page, self._token = page, token.encode()
        self._files = files()
        self._reading = asyncio.Lock()
        self._changed = asyncio.Event()
        self._streams = 0
        self._ending = False
        self._next_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            response = self._refusal(scope) or await self._answer(self._name(scope))
            response.headers.update(SAFE)
            # Counted here: nothing happens between `_answer`, which compares the number, and this line.
            is_stream = isinstance(response, StreamingResponse)
            self._streams += is_stream
            try:
                await response(scope, receive, send)
            finally:
                self._streams -= is_stream

    def _refusal(self, scope: Scope) -> Response | None:
        """What is wrong with a request from elsewhere, or without the secret."""
        headers = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value.rpartition(":")[0] or value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in NAMES:
            return refusal(403, "this page answers only to 127.0.0.1 and localhost")
        if scope["method"] != "GET":
            return refusal(403, "this page can only be read")
        if any(value == "cross-site" for name, value in headers if name == b"sec-fetch-site"):
            return refusal(403, "this page answers no other site")
        given = scope["path"].split("/")[1].encode(errors="replace")
        if not secrets.compare_digest(given, self._token):
            return refusal(403, "open the address that shoal watch printed")
        return None

    def _name(self, scope: Scope) -> str | None:
        """Which file of the page is asked for; None if the path ends with the secret."""
        _, _, *rest = scope["path"].split("/")
        return "/".join(rest) if rest else None

    async def _answer(self, name: str | None) -> Response:
        if name == "":
            await self._read()
            return Response(self._page.html(), media_type="text/html; charset=utf-8")
        if name == "events":
            if self._streams >= MOST_STREAMS:
                return refusal(403, f"{self._streams} pages show this run already; close one")
            return StreamingResponse(self._events(), media_type="text/event-stream")
        if name in self._files:
            kind, content = self._files[name]
            return Response(content, media_type=f"{kind}; charset=utf-8")
        return refusal(404, "there is no such page")

    async def _read(self, is_last: bool = False) -> None:
        """Read the run folder, unless that was done a moment ago."""
        async with self._reading:
            if time.monotonic() < self._next_s and not is_last:
                return
            spent_s = await asyncio.to_thread(self._timed_refresh)
            self._next_s = time.monotonic() + max(PERIOD_S, spent_s / SHARE)
            self._changed.set()
            self._changed = asyncio.Event()

    def _timed_refresh(self) -> float:
        began_s = time.thread_time()
        self._page.refresh()
        return time.thread_time() - began_s

    async def _events(self) -> AsyncGenerator[str]:
        """The parts that have changed, again and again; at the end of the command, its end."""
        sent: dict[str, str] = {}
        beat_s = 0.0
        while not self._ending:
            await self._read()
            parts = self._page.parts
            changed = {name: html for name, html in parts.items() if sent.get(name) != html}
            if changed or time.monotonic() > beat_s:
                beat_s = time.monotonic() + BEAT_S
                yield _message(changed)
            sent = parts
            await self._next_reading()
        parts = self._page.parts
        yield _message({name: html for name, html in parts.items() if sent.get(name) != html})
        yield "event: end\ndata: \n\n"

    async def _next_reading(self) -> None:
        """Wait until somebody reads again, or it is time to."""
        left_s = self._next_s - time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(left_s, 0.01))

    async def end(self) -> None:
        """Show the end of the run in all pages, and let them go."""
        await self._read(is_last=True)
        self._ending = True
        deadline_s = time.monotonic() + STOP_S
        while self._streams and time.monotonic() < deadline_s:
            await asyncio.sleep(0.02)


def _message(parts: dict[str, str]) -> str:
    return f"data: {json.dumps(parts)}\n\n"


def refusal(status: int, why: str) -> Response:
    """One plain line."""
    return PlainTextResponse(f"{status}: {why}\n", status)


@contextmanager
def serving(page: LivePage, listening: socket.socket, token: str) -> Generator[None]:
    """Within this context a thread serves the page; at its end, open pages are told so."""
    served, loop = Served(page, token), asyncio.new_event_loop()
    config = uvicorn.Config(
        served,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    work = server.serve([listening])
    thread = threading.Thread(target=loop.run_until_complete, args=(work,), name="shoal watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(served.end(), loop).result(2 * STOP_S)
        server.should_exit = True
        thread.join(2 * STOP_S)
        if not thread.is_alive():
            loop.close()
