"""A store in which workers read only what workers wrote: keys and values are bound to the secret of the run.

Any program that reaches a store of torch's can list, read, overwrite and delete its keys. In a tagged store

- the name of a key is a tag of (run, key): a program without the secret cannot make a key that a worker reads;
- a value carries a tag of (run, key, writer, sequence, text). A value that is too large, or has a wrong tag, another
  writer or an older sequence than one already read, is ignored. Size and tag are checked before anything is parsed.

The run is a random number that rank 0 draws, so a value of an earlier run with the same secret fits nothing.
"""

import contextlib
import hmac
import itertools
import re
import secrets
import threading
import time
from collections.abc import Collection, Generator, Iterable, Sequence
from datetime import timedelta
from typing import Any, final

import torch.distributed as dist

from shoal.comm.rendezvous.secret import TagKey, run_secret
from shoal.errors import JoinError

LARGEST_VALUE = 1 << 20
"""Bytes of a value in the store. Ours are below a hundredth of that."""

MOST_CHARACTERS = 10_000
"""Characters of a message to other workers; what is longer is cut."""

MOST_ASKED_SINGLY = 16
KEEP_EVERY_S = 0.1
READ_EVERY_S = 0.005
KEEPER_ENDS_S = 0.5

FINGERPRINT = re.compile(rb"[0-9a-f]{8}")

ABSENT = b"?"
NO_SECRET = "none"


@final
class _Session:
    """What all views of one worker's tagged store share."""

    def __init__(self, rank: int, secret: bytes) -> None:
        self.rank = rank
        self.base = TagKey.of(secret)
        self.fingerprint = self.base.bound("fingerprint").tag(b"").hex()[:8] if secret else NO_SECRET
        self.sequence = itertools.count(1)
        self.run, self.has_rival = "", False
        self.kept: dict[str, bytes] | None = None
        """Per name: what this worker wrote and keeps in the store."""
        self.bind("")

    def bind(self, run: str) -> None:
        """Bind all that follows to this run."""
        self.run = run
        self.names, self.tags = self.base.bound("name", run), self.base.bound("value", run)
        self.newest: dict[tuple[str, int], tuple[int, str]] = {}
        """Per name and writer: the newest value that was read, with its sequence."""


@final
class TaggedStore:
    """One worker's view of a store of torch's."""

    def __init__(self, store: Any, rank: int, session: _Session | None = None, prefix: str = "") -> None:
        self.connection, self._prefix = store, prefix
        self._session = session or _Session(rank, run_secret())

    # Views of the same store.

    def within(self, prefix: str) -> "TaggedStore":
        """The same store with a prefix before every key."""
        return TaggedStore(self.connection, self._session.rank, self._session, f"{self._prefix}{prefix}/")

    def through(self, store: Any) -> "TaggedStore":
        """The same keys through another connection."""
        return TaggedStore(store, self._session.rank, self._session, self._prefix)

    def clone(self) -> "TaggedStore":
        """The same keys through a connection of their own."""
        return self.through(self.connection.clone())

    def for_torch(self, prefix: str) -> Any:
        """A part of torch's store for a backend of torch's, whose values carry no tags: only its prefix is hidden."""
        return dist.PrefixStore(self._name(prefix), self.connection)

    def connection_key(self) -> TagKey:
        """The key for connections of members that meet under this prefix."""
        return self._session.base.bound("connection", self._session.run, self._prefix)

    # The run.

    def begin(self) -> bool:
        """Whether the run is known: rank 0 draws its number, the others read it. Call this until it is."""
        session = self._session
        if not session.run:
            root = TaggedStore(self.connection, session.rank, session)
            if session.rank == 0:
                drawn = secrets.token_hex(16)
                found = root.claim("run", drawn, 0)
                session.has_rival = found != drawn
            else:
                found = root.read("run", 0)
            if found is not None:
                session.bind(found)
        return bool(session.run)

    @property
    def has_rival(self) -> bool:
        """Whether another worker has begun the run as rank 0 before this one."""
        return self._session.has_rival

    # Notes in the clear. They only explain why a worker is missing: any program that reaches the store can write them.

    def note_secret(self) -> None:
        """Publish which secret this worker has: a fingerprint of it, or that it has none."""
        self.connection.set(f"secret of rank {self._session.rank}", self._session.fingerprint)

    def noted_secrets(self, ranks: Iterable[int]) -> dict[int, str]:
        """How the secrets of others compare, as far as they have published it: the same, another, none."""
        found = {rank: self._value(f"secret of rank {rank}") for rank in ranks}
        mine = self._session.fingerprint.encode()
        return {
            rank: "the same" if value == mine else NO_SECRET if value == NO_SECRET.encode() else "another"
            for rank, value in found.items()
            if value == NO_SECRET.encode() or FINGERPRINT.fullmatch(value)  # else no worker wrote it
        }

    @property
    def has_secret(self) -> bool:
        """Whether this worker has a secret."""
        return self._session.fingerprint != NO_SECRET

    # Values.

    def set(self, key: str, text: str) -> None:
        """Write a value."""
        name = self._name(key)
        value = self._with_tag(name, text)
        self._keep(name, value)
        self.connection.set(name, value)

    def read(self, key: str, writer: int | None = None) -> str | None:
        """The newest value that `writer` (None: any member) has written; None if there is none. Never waits."""
        name = self._name(key)
        return self._opened(name, self._value(name), writer)

    def read_all(self, entries: Sequence[tuple[str, int]]) -> list[str | None]:
        """The newest values of (key, writer), as `read` gives them; many in two messages to the store."""
        names = [self._name(key) for key, _ in entries]
        if len(names) > MOST_ASKED_SINGLY and self.connection.check(names):
            # Waits, should another program delete one at this moment.
            values: Iterable[bytes] = self.connection.multi_get(names)
        else:
            values = map(self._value, names)
        return [
            self._opened(name, value, writer)
            for name, value, (_, writer) in zip(names, values, entries, strict=True)
        ]

    def read_from(self, key: str, writers: Collection[int], limit_s: float) -> dict[int, str]:
        """What these workers have written under `key/RANK`, without those that have not in time."""
        found: dict[int, str] = {}
        deadline = time.monotonic() + limit_s
        while True:
            absent = [rank for rank in writers if rank not in found]
            texts = self.read_all([(f"{key}/{rank}", rank) for rank in absent])
            found |= {rank: text for rank, text in zip(absent, texts, strict=True) if text is not None}
            if len(found) == len(writers) or time.monotonic() > deadline:
                return {rank: found[rank] for rank in writers if rank in found}
            time.sleep(READ_EVERY_S)

    def claim(self, key: str, text: str, writer: int) -> str:
        """Write a value unless `writer` has written one; the value that is there then."""
        name = self._name(key)
        mine, there = self._with_tag(name, text), b""
        while True:
            # Overwrites only what was found there: nothing, or something that no member wrote.
            now: bytes = self.connection.compare_set(name, there, mine)
            if now == mine:
                self._keep(name, mine)
                return text
            found = self._opened(name, now, writer)
            if found is not None:
                return found
            there = now

    def count(self, key: str) -> int:
        """Add 1 to a counter that begins with 0. A counter has no tag: only its name is hidden."""
        return self.connection.add(self._name(key), 1)

    def wait(self, keys: Iterable[str], limit: timedelta) -> None:
        """Wait until all keys are there."""
        self.connection.wait([self._name(key) for key in keys], limit)

    def _name(self, key: str) -> str:
        return self._session.names.tag(f"{self._prefix}{key}".encode()).hex()

    def _value(self, name: str) -> bytes:
        """What is under this name, without waiting for it."""
        # Compares with a text that no value of ours has: that changes nothing and answers at once.
        return self.connection.compare_set(name, ABSENT, ABSENT)

    def _with_tag(self, name: str, text: str) -> bytes:
        body = f"{self._session.rank} {next(self._session.sequence)} {text}".encode()
        if len(body) > LARGEST_VALUE // 2:
            raise JoinError(
                f"cannot send {len(body):,} bytes through the store where workers meet: "
                f"the largest value has {LARGEST_VALUE // 2:,}"
            )
        return self._tag(name, body) + b" " + body

    def _tag(self, name: str, body: bytes) -> bytes:
        return self._session.tags.tag(name.encode() + body).hex().encode()

    def _opened(self, name: str, value: bytes, writer: int | None) -> str | None:
        last, known = (0, None) if writer is None else self._session.newest.get((name, writer), (0, None))
        if len(value) > LARGEST_VALUE:
            return known
        tag, _, body = value.partition(b" ")
        if not hmac.compare_digest(tag, self._tag(name, body)):
            return known
        try:
            author, sequence, text = body.decode().split(" ", 2)
            fits = writer is None or (int(author) == writer and int(sequence) > last)
        except ValueError:  # a program that knows the empty secret wrote it
            return known
        if not fits:
            return known
        if writer is not None:
            self._session.newest[name, writer] = int(sequence), text
        return text

    # Entries that are needed until all members have read them.

    @contextlib.contextmanager
    def kept(self) -> Generator[None]:
        """Restore, as long as this lasts, what this worker writes and another program overwrites or deletes."""
        self._session.kept = {}
        over = threading.Event()
        keeper = threading.Thread(
            target=self._restore, args=(over,), name="shoal keeps its entries", daemon=True
        )
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join(KEEPER_ENDS_S)
            self._session.kept = None

    def _keep(self, name: str, value: bytes) -> None:
        if self._session.kept is not None:
            self._session.kept[name] = value

    def _restore(self, over: threading.Event) -> None:
        apart = None
        while not over.wait(KEEP_EVERY_S):
            with contextlib.suppress(RuntimeError):  # the store may be gone with its holder
                apart = apart or self.clone()
                kept = self._session.kept or {}
                for name, value in tuple(kept.items()):
                    if apart._value(name) != value and kept[name] is value:
                        apart.connection.set(name, value)


def tagged(store: Any, rank: int) -> TaggedStore:
    """A store as worker `rank` uses it: tagged, if it is not yet."""
    return store if isinstance(store, TaggedStore) else TaggedStore(store, rank)
