"""A connection between every two members of a group, which meet in a store.

Each member listens for those of higher rank. A connection must begin with a tag that is made with the secret of the run
(`comm/rendezvous/secret.py`) and bound to both ranks; all others are closed.
"""

import contextlib
import ipaddress
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import final

from shoal.comm.rendezvous.secret import TAG_BYTES, TagKey
from shoal.comm.rendezvous.store import foreign, listen
from shoal.comm.rendezvous.tagged_store import TaggedStore

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

    All connections are served at once, so that one that sends nothing, or slowly, delays no other.
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
