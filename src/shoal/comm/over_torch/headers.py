"""Headers of collectives: every member sends the signature of its next call to all others before data moves.

A connection between every two members, which meet in a store, carries nothing else. Each member listens for the members
of higher rank. A connection must begin with a tag that is made with the secret of the run (`comm/rendezvous/secret.py`)
and bound to both ranks; all others are closed.

A header is sixteen bytes and a tag of sixteen more, and headers come in the order of the calls: the n-th from every
member belongs to the n-th collective. Publishing costs one small send per member, taking usually a receive that finds
them there. (An all-gather of torch's costs a hundred times as much: its work passes through two threads on every side.)
The tag of a header is bound to its writer and its number: bytes that are inserted, repeated or left out end the
connection.
"""

import contextlib
import ipaddress
import select
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from shoal.comm.rendezvous.secret import TAG_BYTES, TagKey
from shoal.comm.rendezvous.store import foreign, listen
from shoal.comm.rendezvous.tagged_store import TaggedStore, tagged

CONNECT_S = 60.0
"""How long connecting to members that have already met may take."""
ASK_EVERY_S = 0.002
HELLO_S = 5.0
"""How long a caller may take to identify itself. Others are served meanwhile."""
MOST_UNKNOWN = 64
"""How many callers may be connected without having identified themselves; the oldest is dropped first."""

_STRANGER = -1
_HELLO = struct.Struct(f"<i{TAG_BYTES}s")
"""The caller's place in the group, and a tag."""
NO_RANK = -1
_FAREWELL = -1
"""In place of a code: the last header of a member that ends with an error."""
_HEADER = struct.Struct(f"<qq{TAG_BYTES}s")
_NUMBERED = struct.Struct("<qqqq")
"""What the tag of a header is made of: the writer's rank, the number of the header, code, numel."""


def connect_members(
    store: TaggedStore, rank: int, names: Sequence[int], host: str
) -> dict[int, socket.socket]:
    """A connection to every other member: the member of higher rank connects to the one of lower rank."""
    deadline = time.monotonic() + CONNECT_S
    tag_key = store.connection_key()
    with listen(host, 0) as server, contextlib.ExitStack() as undo:
        address, port = server.getsockname()[:2]
        store.set(f"address/{rank}", f"{port} {address}")
        connections: dict[int, socket.socket] = {}
        for other in range(rank):
            address, port = _address(store, f"address/{other}", names[other], deadline)
            hello = _HELLO.pack(rank, tag_key.tag(_greeting(rank, other)))
            try:
                connection = _call(address, port, hello, deadline)
            except OSError as error:
                raise RuntimeError(
                    f"rank {names[rank]} cannot reach rank {names[other]} at {address}, port {port}: "
                    f"{error.strerror or error} (check for a firewall between them)"
                ) from error
            connections[other] = undo.enter_context(connection)
        callers = _answer(server, tag_key, rank, set(range(rank + 1, len(names))), deadline)
        for connection in callers.values():
            undo.enter_context(connection)
        if missing := [names[other] for other in range(rank + 1, len(names)) if other not in callers]:
            raise RuntimeError(
                f"no connection came to rank {names[rank]} from rank {', '.join(map(str, missing))} "
                "(check for a firewall between them)"
            )
        undo.pop_all()
    return connections | callers


def _address(store: TaggedStore, key: str, writer: int, deadline: float) -> tuple[str, int]:
    """The address that a member listens on, once it has published it."""
    while (text := store.read(key, writer)) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"rank {writer} has not published its address")
        time.sleep(ASK_EVERY_S)
    try:
        port, address = text.split(" ", 1)
        return str(ipaddress.ip_address(address)), int(port)
    except ValueError:
        raise foreign(text) from None


def _greeting(caller: int, answerer: int) -> bytes:
    """What the first tag on a connection is made of: no header has this length."""
    return f"rank {caller} calls rank {answerer}".encode()


def _call(address: str, port: int, hello: bytes, deadline: float) -> socket.socket:
    """Connect to a member and identify this one."""
    connection = socket.create_connection((address, port), timeout=max(deadline - time.monotonic(), 0.001))
    try:
        connection.sendall(hello)
    except OSError:
        connection.close()
        raise
    return connection


@final
class _Caller:
    """An accepted connection, and what it has sent so far."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket, self.received = connection, bytearray()
        self.until = time.monotonic() + HELLO_S

    def is_incomplete(self) -> bool:
        """Receive what has come; whether more may come."""
        try:
            more = self.socket.recv(_HELLO.size - len(self.received))
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.received += more
        return len(more) > 0 and len(self.received) < _HELLO.size

    def place(self, tag_key: TagKey, answerer: int) -> int:
        """The place of a member, or −1 without the right tag."""
        if len(self.received) < _HELLO.size:
            return _STRANGER
        rank, tag = _HELLO.unpack(self.received)
        return rank if tag_key.fits(tag, _greeting(rank, answerer)) else _STRANGER


def _answer(
    server: socket.socket, tag_key: TagKey, answerer: int, expected: set[int], deadline: float
) -> dict[int, socket.socket]:
    """The connections that present the tag of an expected member, as many as come in time.

    All connections are served at once, so that a slow or silent one delays no other.
    """
    members: dict[int, socket.socket] = {}
    unknown: deque[_Caller] = deque()
    server.setblocking(False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(server, selectors.EVENT_READ)

        def drop(caller: _Caller) -> None:
            waiting.unregister(caller.socket)
            unknown.remove(caller)

        while len(members) < len(expected) and time.monotonic() < deadline:
            for key, _ in waiting.select(min(1.0, max(0.0, deadline - time.monotonic()))):
                if key.fileobj is server:
                    with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
                        caller = _Caller(server.accept()[0])
                        unknown.append(caller)
                        waiting.register(caller.socket, selectors.EVENT_READ, caller)
                elif not (caller := key.data).is_incomplete():
                    drop(caller)
                    if (place := caller.place(tag_key, answerer)) in expected - members.keys():
                        members[place] = caller.socket
                    else:
                        caller.socket.close()
            while unknown and (len(unknown) > MOST_UNKNOWN or unknown[0].until < time.monotonic()):
                caller = unknown[0]
                drop(caller)
                caller.socket.close()
        for caller in unknown:
            caller.socket.close()
    return members


class Header(NamedTuple):
    """The signature of one member's next call, encoded."""

    code: int
    numel: int


@final
class HungUpError(RuntimeError):
    """A member closed its connection, or the network did."""

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(what)
        self.rank = rank
        self.label = ""
        """The collective that the member has not reached, if one waits for it."""


@final
class _Peer:
    """The connection to one member: the headers that have come, and bytes that the system has not yet accepted."""

    def __init__(self, rank: int, connection: socket.socket, tag_key: TagKey) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.rank, self.socket, self._tag_key = rank, connection, tag_key
        self.arrived: deque[Header] = deque()
        self.hung_up = False
        self.blamed = NO_RANK
        """The member that this one named as the cause of its end, if it has ended with an error."""
        self._to_send, self._received = bytearray(), bytearray()
        self._num_received = 0

    def awaited(self) -> int:
        """The events to wait for on the connection: bits of `poll`."""
        return (0 if self.arrived else select.POLLIN) | (select.POLLOUT if self._to_send else 0)

    def send(self, data: bytes = b"") -> None:
        """Send as much as the system accepts; the rest goes with a later call."""
        self._to_send += data
        if not self._to_send:
            return
        try:
            del self._to_send[: self.socket.send(self._to_send)]
        except BlockingIOError:
            pass
        except OSError:
            self._to_send.clear()  # it is gone: the next `receive` raises

    def receive(self) -> None:
        """Receive what has come; raise when the connection has ended."""
        try:
            data = self.socket.recv(4096)
        except BlockingIOError:
            return
        except OSError as error:
            self.hung_up = True
            raise HungUpError(
                self.rank, f"the connection to rank {self.rank} broke: {error.strerror}"
            ) from error
        if not data:
            self.hung_up = True
            raise HungUpError(self.rank, f"rank {self.rank} closed its connection")
        self._received += data
        whole = len(self._received) // _HEADER.size * _HEADER.size
        for code, numel, tag in _HEADER.iter_unpack(self._received[:whole]):
            self._num_received += 1
            if not self._tag_key.fits(tag, _NUMBERED.pack(self.rank, self._num_received, code, numel)):
                self.hung_up = True
                raise HungUpError(
                    self.rank, f"the connection to rank {self.rank} carried bytes not of its own"
                )
            if code == _FAREWELL:
                self.blamed = numel
            else:
                self.arrived.append(Header(code, numel))
        del self._received[:whole]


@final
class Headers:
    """Connections among members that meet in `store`. Making them blocks until all others do the same.

    `names` are the members' ranks in the world, `rank` is this member's place among them. A member that is gone raises
    `HungUpError` when a header of it is needed: what it sent before counts.
    """

    def __init__(self, store: Any, rank: int, names: Sequence[int], host: str) -> None:
        self._rank, self._name = rank, names[rank]
        ours = tagged(store, self._name)
        self._tag_key = ours.connection_key()
        connections = connect_members(ours, rank, names, host) if len(names) > 1 else {}
        self._peers = [
            _Peer(names[other], connections[other], self._tag_key) for other in sorted(connections)
        ]
        self._mine: deque[Header] = deque()
        self._num_sent = 0

    def publish(self, header: Header) -> None:
        """Send the header of this member's next call to all others."""
        self._mine.append(header)
        self._send(*header)

    def _send(self, code: int, numel: int) -> None:
        self._num_sent += 1
        tag = self._tag_key.tag(_NUMBERED.pack(self._name, self._num_sent, code, numel))
        data = _HEADER.pack(code, numel, tag)
        for peer in self._peers:
            peer.send(data)

    def take(self) -> list[Header] | None:
        """All members' headers of the first collective not yet taken, in rank order; None if some have not come."""
        for peer in self._peers:
            peer.send()
            if not peer.arrived:
                peer.receive()
        if not all(peer.arrived for peer in self._peers):
            return None
        rows = [peer.arrived.popleft() for peer in self._peers]
        rows.insert(self._rank, self._mine.popleft())
        return rows

    def blame(self, rank: int) -> None:
        """Tell all others which member, by its rank in the world, is the cause of this one's end."""
        self._send(_FAREWELL, rank)

    def hung_up(self) -> dict[int, int]:
        """The members whose connections have ended, each with the member that it blamed (or NO_RANK)."""
        for peer in self._peers:
            with contextlib.suppress(HungUpError):
                peer.receive()
        return {peer.rank: peer.blamed for peer in self._peers if peer.hung_up}

    def wait_for(self, seconds: float) -> None:
        """Wait at most that long until a missing header comes or more can be sent."""
        waiting = select.poll()
        for peer in self._peers:
            if peer.awaited():
                waiting.register(peer.socket, peer.awaited())
        waiting.poll(1e3 * seconds)

    def close(self) -> None:
        """Close the connections; what has been sent still arrives."""
        for peer in self._peers:
            peer.send()
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
            peer.socket.close()
        self._peers.clear()
