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
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from shoal.comm.store import listen

_CONNECT_S = 60.0
"""How long connecting to members that have already met may take."""
_HELLO_S = 5.0
"""How long somebody who connects may take to say who it is. Nobody waits for it meanwhile."""
_MOST_UNKNOWN = 64
"""How many may be connected who have not yet said who they are; the longest silent goes first."""
_TOKEN_BYTES = 16

_HEADER = struct.Struct("<qq")
_HELLO = struct.Struct(f"<{_TOKEN_BYTES}si")


class Header(NamedTuple):
    """One member's next call."""

    code: int
    numel: int


@final
class HungUpError(RuntimeError):
    """A member closed its connection, or something on the way did."""

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(what)
        self.rank = rank


@final
class _Peer:
    """The connection to one member: what it has told, and what the system would not yet take from us."""

    def __init__(self, rank: int, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.rank, self.socket = rank, connection
        self.told: deque[Header] = deque()
        self._to_send, self._received = bytearray(), bytearray()

    def awaited(self) -> int:
        """What must happen on the connection before it can be of use: bits of `poll`."""
        return (0 if self.told else select.POLLIN) | (select.POLLOUT if self._to_send else 0)

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
            raise HungUpError(
                self.rank, f"the connection to rank {self.rank} broke: {error.strerror}"
            ) from error
        if not data:
            raise HungUpError(self.rank, f"rank {self.rank} closed its connection")
        self._received += data
        whole = len(self._received) // _HEADER.size * _HEADER.size
        self.told.extend(Header(*fields) for fields in _HEADER.iter_unpack(self._received[:whole]))
        del self._received[:whole]


@final
class Headers:
    """Connections among members that meet in `store`. Making them blocks until all others do the same.

    `names` are the members' ranks in the world, `rank` is our place among them. A member that is gone is noticed
    when a header of it is needed, as `HungUpError`: what it told before it went counts.
    """

    def __init__(self, store: Any, rank: int, names: Sequence[int], host: str) -> None:
        self._rank = rank
        connections = _connect(store, rank, names, host) if len(names) > 1 else {}
        self._peers = [_Peer(names[other], connections[other]) for other in sorted(connections)]
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
        """Wait until a missing header comes or what is left can be handed over, but no longer than that."""
        waiting = select.poll()
        for peer in self._peers:
            if peer.awaited():
                waiting.register(peer.socket, peer.awaited())
        waiting.poll(1e3 * seconds)

    def close(self) -> None:
        """Hang up; what has been told still arrives."""
        for peer in self._peers:
            peer.send()
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
            peer.socket.close()
        self._peers.clear()


def _connect(store: Any, rank: int, names: Sequence[int], host: str) -> dict[int, socket.socket]:
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
            try:
                connection = _call(address, int(port), _HELLO.pack(token, rank), deadline)
            except OSError as error:
                raise RuntimeError(
                    f"rank {names[rank]} cannot reach rank {names[other]} at {address}, port {port}: "
                    f"{error.strerror or error} (is there a firewall between them?)"
                ) from error
            connections[other] = undo.enter_context(connection)
        callers = _answer(server, token, set(range(rank + 1, len(names))), deadline)
        for connection in callers.values():
            undo.enter_context(connection)
        if missing := [names[other] for other in range(rank + 1, len(names)) if other not in callers]:
            raise RuntimeError(
                f"no connection came to rank {names[rank]} from rank {', '.join(map(str, missing))} "
                "(is there a firewall between them?)"
            )
        undo.pop_all()
    return connections | callers


def _call(address: str, port: int, hello: bytes, deadline: float) -> socket.socket:
    """Connect to a member, and say who we are."""
    connection = socket.create_connection((address, port), timeout=max(deadline - time.monotonic(), 0.001))
    try:
        connection.sendall(hello)
    except OSError:
        connection.close()
        raise
    return connection


@final
class _Caller:
    """Somebody who has connected, and what it has said so far."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket, self.said = connection, bytearray()
        self.until = time.monotonic() + _HELLO_S

    def has_more_to_say(self) -> bool:
        """Take in what has come; whether something is still missing that may come."""
        try:
            more = self.socket.recv(_HELLO.size - len(self.said))
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.said += more
        return len(more) > 0 and len(self.said) < _HELLO.size

    def place(self, token: bytes) -> int:
        """The rank of a member, or −1 for whoever does not know the token."""
        if len(self.said) < _HELLO.size:
            return -1
        theirs, rank = _HELLO.unpack(self.said)
        return rank if hmac.compare_digest(theirs, token) else -1


def _answer(
    server: socket.socket, token: bytes, expected: set[int], deadline: float
) -> dict[int, socket.socket]:
    """The connections of those who call us and know the token, as many as come in time.

    Everyone is listened to at once, so that strangers who say nothing, or say it slowly, delay nobody.
    """
    members: dict[int, socket.socket] = {}
    unknown: deque[_Caller] = deque()
    server.setblocking(False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(server, selectors.EVENT_READ)

        def let_go(caller: _Caller) -> None:
            waiting.unregister(caller.socket)
            unknown.remove(caller)

        while len(members) < len(expected) and time.monotonic() < deadline:
            for key, _ in waiting.select(min(1.0, max(0.0, deadline - time.monotonic()))):
                if key.fileobj is server:
                    with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
                        caller = _Caller(server.accept()[0])
                        unknown.append(caller)
                        waiting.register(caller.socket, selectors.EVENT_READ, caller)
                elif not (caller := key.data).has_more_to_say():
                    let_go(caller)
                    if (place := caller.place(token)) in expected - members.keys():
                        members[place] = caller.socket
                    else:
                        caller.socket.close()
            while unknown and (len(unknown) > _MOST_UNKNOWN or unknown[0].until < time.monotonic()):
                caller = unknown[0]
                let_go(caller)
                caller.socket.close()
        for caller in unknown:
            caller.socket.close()
    return members
