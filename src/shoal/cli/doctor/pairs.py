"""What one node measures of another, over a plain connection of its own: whether it opens, latency, clock, rate.

The caller does all the work: it connects, asks for the time again and again, then receives for a moment as fast as the
answerer sends. A connection begins with a tag that is made with the secret of the run; others are closed.
"""

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import final

from shoal.comm.rendezvous.network import free_ports, way_out, why
from shoal.comm.rendezvous.secret import TAG_BYTES, TagKey
from shoal.comm.rendezvous.store import listen

CONNECT_S = 3.0
"""Seconds after which a connection without an answer counts as closed."""
ANSWER_S = 5.0
"""How long either side may be silent."""
NUM_PINGS = 20
WARM_S, RATE_S = 0.1, 0.4
"""Seconds until TCP has found the rate, and seconds for which it is measured."""
CHUNK = 1 << 18
NOISE_S = 0.5e-3
"""Latency that a busy processor adds."""
_HELLO = struct.Struct(f"<i{TAG_BYTES}s")
_TIME = struct.Struct("<d")
_PING, _RATE = b"p", b"r"


@dataclass(frozen=True)
class Found:
    """What a node has found of another; only the first two if the connection does not open."""

    error: str = ""
    repair: str = ""
    round_trip_s: float = 0.0
    """The shortest of several."""
    clock_s: float = 0.0
    """How far the other's clock is ahead; the error is at most half the round trip."""
    bits_per_s: float = 0.0
    """The rate from the other to this node."""

    @property
    def answers_per_s(self) -> float:
        """The latency as a rate; `NOISE_S` more or less of it says nothing."""
        return 1 / (self.latency_s + NOISE_S)

    @property
    def latency_s(self) -> float:
        """Half the round trip."""
        return self.round_trip_s / 2


def latency_s(answers_per_s: float) -> float:
    """The latency that `Found.answers_per_s` tells."""
    return 1 / answers_per_s - NOISE_S


@final
class Answerer:
    """Answers the connections of other nodes, each in a thread, until it is closed."""

    def __init__(self, host: str, rank: int, key: TagKey) -> None:
        self._rank, self._key = rank, key
        self._server = listen(host, 0)
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, name="shoal answers other nodes", daemon=True).start()

    def close(self) -> None:
        """Answer no longer."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(ANSWER_S)
            caller, tag = _HELLO.unpack(_received(connection, _HELLO.size))
            if not self._key.fits(tag, _greeting(caller, self._rank)):
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while _received(connection, 1) == _PING:
                connection.sendall(_TIME.pack(time.time()))
            until, data = time.monotonic() + ANSWER_S, bytes(CHUNK)
            while time.monotonic() < until:  # usually until the caller hangs up
                connection.sendall(data)


def measure(address: str, port: int, caller: int, answerer: int, key: TagKey) -> Found:
    """What this node, `caller`, finds of the node that answers at this address."""
    try:
        connection = socket.create_connection((address, port), CONNECT_S)
    except OSError as error:
        return Found(why(error), way_out(error, free_ports()))
    try:
        with connection:
            connection.settimeout(ANSWER_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(_HELLO.pack(caller, key.tag(_greeting(caller, answerer))))
            pings = [_ping(connection) for _ in range(NUM_PINGS)]
            return Found("", "", *min(pings), _rate(connection))
    except OSError as error:
        return Found(f"connected, but then {why(error)}", way_out(error, free_ports()))


def _ping(connection: socket.socket) -> tuple[float, float]:
    """The time of a round trip, and how far the other's clock is ahead."""
    start, start_clock = time.perf_counter(), time.time()
    connection.sendall(_PING)
    (theirs,) = _TIME.unpack(_received(connection, _TIME.size))
    round_trip_s = time.perf_counter() - start
    return round_trip_s, theirs - (start_clock + round_trip_s / 2)


def _rate(connection: socket.socket) -> float:
    """Bits per second that come in, once TCP has found its rate."""
    connection.sendall(_RATE)
    buffer = bytearray(4 * CHUNK)
    start = now = time.perf_counter()
    warm, num_bytes = 0.0, 0
    while now - start < WARM_S + RATE_S:
        num = connection.recv_into(buffer)
        if num == 0:
            raise ConnectionAbortedError(0, "the other end hung up")
        now = time.perf_counter()
        if warm:
            num_bytes += num
        elif now - start >= WARM_S:
            warm = now
    return 8 * num_bytes / max(now - warm, 1e-9)


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionAbortedError(0, "the other end hung up")
        data += more
    return bytes(data)


def _greeting(caller: int, answerer: int) -> bytes:
    return f"node {caller} measures node {answerer}".encode()
