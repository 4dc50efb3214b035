"""What every member is about to call, told to all others before any data moves.

A connection between every two members carries nothing else. Each header is sixteen bytes, and they come in the order of
the calls: the n-th from every member belongs to the n-th collective. Telling costs one small send per member, hearing
usually a receive that finds them there. (An all-gather of torch's costs a hundred times as much: its work
passes through two threads on every side.)
"""

import contextlib
import hmac
import secrets
import select
import socket
import struct
import time
from collections import deque
from typing import Any, NamedTuple, final

from shoal.comm.store import listen

_CONNECT_S = 60.0
"""How long connecting to members that have already met may take."""
_HELLO_S = 5.0
"""How long somebody who connects may take to say who it is."""
_TOKEN_BYTES = 16

_HEADER = struct.Struct("<qq")
_HELLO = struct.Struct(f"<{_TOKEN_BYTES}si")


class Header(NamedTuple):
    """One member's next call."""

    code: int
    numel: int


@final
class _Peer:
    """The connection to one member: what it has told, and what the system would not yet take from us."""

    def __init__(self, rank: int, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.rank, self.socket = rank, connection
        self.told: deque[Header] = deque()
        self._to_send, self._received = bytearray(), bytearray()

    def send(self, data: bytes = b"") -> None:
        """Hand over as much as the system takes; the rest goes with a later call."""
        self._to_send += data
        if not self._to_send:
            return
        try:
            del self._to_send[: self.socket.send(self._to_send)]
        except BlockingIOError:
            pass
        except OSError:
            self._to_send.clear()  # it has gone: whoever needs a header of it will be told

    def receive(self) -> None:
        """Take in what has come; an error if nothing more ever will."""
        try:
            data = self.socket.recv(4096)
        except BlockingIOError:
            return
        except OSError as error:
            raise RuntimeError(f"the connection to rank {self.rank} broke: {error.strerror}") from error
        if not data:
            raise RuntimeError(f"rank {self.rank} closed its connection")
        self._received += data
        whole = len(self._received) // _HEADER.size * _HEADER.size
        self.told.extend(Header(*fields) for fields in _HEADER.iter_unpack(self._received[:whole]))
        del self._received[:whole]


@final
class Headers:
    """Connections among `size` members that meet in `store`. Making them blocks until all others do the same.

    A member that is gone is noticed when a header of it is needed, as a `RuntimeError`: what it told before it went
    counts.
    """

    def __init__(self, store: Any, rank: int, size: int, host: str) -> None:
        self._rank = rank
        connections = _connect(store, rank, size, host) if size > 1 else {}
        self._peers = [_Peer(other, connections[other]) for other in sorted(connections)]
        self._mine: deque[Header] = deque()

    def tell(self, header: Header) -> None:
        """Tell everyone our next call."""
        self._mine.append(header)
        data = _HEADER.pack(*header)
        for peer in self._peers:
            peer.send(data)

    def take(self) -> list[Header] | None:
        """Everyone's headers of the first collective not yet taken, in rank order; none if some have not come."""
        for peer in self._peers:
            peer.send()
            if not peer.told:
                peer.receive()
        if not all(peer.told for peer in self._peers):
            return None
        rows = [peer.told.popleft() for peer in self._peers]
        rows.insert(self._rank, self._mine.popleft())
        return rows

    def wait_for(self, seconds: float) -> None:
        """Wait until something comes from somebody whose header is missing, but no longer than that."""
        waiting = select.poll()
        for peer in self._peers:
            if not peer.told:
                waiting.register(peer.socket, select.POLLIN)
        waiting.poll(1e3 * seconds)

    def close(self) -> None:
        """Hang up; what has been told still arrives."""
        for peer in self._peers:
            peer.send()
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
            peer.socket.close()
        self._peers.clear()


def _connect(store: Any, rank: int, size: int, host: str) -> dict[int, socket.socket]:
    """A connection to every other member: those of lower rank are called, those of higher rank call us."""
    deadline = time.monotonic() + _CONNECT_S
    with listen(host, 0) as server, contextlib.ExitStack() as undo:
        if rank == 0:
            store.set("token", secrets.token_hex(_TOKEN_BYTES))
        address, port = server.getsockname()[:2]
        store.set(f"address/{rank}", f"{port} {address}")
        token = bytes.fromhex(store.get("token").decode())
        connections: dict[int, socket.socket] = {}
        for other in range(rank):
            port, address = store.get(f"address/{other}").decode().split(" ", 1)
            connections[other] = undo.enter_context(_call(address, int(port), deadline))
            connections[other].sendall(_HELLO.pack(token, rank))
        while len(connections) < size - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection = undo.enter_context(server.accept()[0])
            except TimeoutError:
                missing = ", ".join(str(other) for other in range(rank + 1, size) if other not in connections)
                raise RuntimeError(f"no connection came from rank {missing}") from None
            caller = _who_calls(connection, token)
            if rank < caller < size and caller not in connections:
                connections[caller] = connection
            else:
                connection.close()  # a stranger
        undo.pop_all()
    return connections


def _call(address: str, port: int, deadline: float) -> socket.socket:
    try:
        return socket.create_connection((address, port), timeout=max(deadline - time.monotonic(), 0.001))
    except OSError as error:
        raise RuntimeError(f"cannot reach {address}:{port}: {error.strerror or error}") from error


def _who_calls(connection: socket.socket, token: bytes) -> int:
    """The rank of a member that connects, or −1 for whoever does not know the token."""
    connection.settimeout(_HELLO_S)
    data = bytearray()
    with contextlib.suppress(OSError):
        while len(data) < _HELLO.size and (more := connection.recv(_HELLO.size - len(data))):
            data += more
    if len(data) < _HELLO.size:
        return -1
    theirs, rank = _HELLO.unpack(data)
    return rank if hmac.compare_digest(theirs, token) else -1
