"""What a worker reports through a store: that it makes progress, where it waits, and why it ends.

Each worker keeps short entries: how long ago it last made progress, and for whom it waits (`idle`), why it ended
(`end`), and which collective of a group it waits in (`at`). It writes them about twice a second; `presence.py` reads
them.
"""

import json
import os
import time
from collections.abc import Callable
from typing import final

from shoal.comm.liveness.judge import LastWords
from shoal.comm.liveness.watch import answer_stack_requests, at_exit
from shoal.comm.over_torch.headers import NO_RANK
from shoal.comm.rendezvous.store import stored
from shoal.comm.rendezvous.tagged_store import MOST_CHARACTERS, TaggedStore
from shoal.errors import MemberError

WRITE_EVERY_S = 0.5
"""And at least four times within the limit for a silent member."""

HOLD_S = 3.0
"""How long the worker that holds the store keeps it after an error, for the others to read the reason."""


@final
class SignsOfLife:
    """One worker's entries. `others` are the ranks for which it keeps the store, if it holds it."""

    def __init__(
        self, store: TaggedStore, rank: int, limit_s: float, others: set[int], is_out: Callable[[int], bool]
    ) -> None:
        self._store, self._rank, self._limit_s = store, rank, limit_s
        self._others, self._is_out = others, is_out
        self._write_every_s = min(WRITE_EVERY_S, limit_s / 4)
        self._progress = time.monotonic()
        self._written = 0.0
        self._says_more = False
        """Whether the last entry says more than that this worker makes progress: it waits, or has announced work."""
        self._count = 0
        self._ended = False
        store.set(f"stack/{rank}", str(answer_stack_requests(os.getpid())))
        store.set(f"end/{rank}", "")
        self._write_idle(0.0)
        self.forget_exit = at_exit(self._leave)

    def wait_in(self, group: str, sequence: int) -> None:
        """Report which collective of a group this worker has reached; 0 for a group that it has only entered."""
        self._store.set(f"at/{group}/{self._rank}", str(sequence))

    def beat(self, busy_s: float = 0.0) -> None:
        """Note progress, or work that may take `busy_s`; report it from time to time."""
        self._progress = time.monotonic()
        if busy_s or self._says_more or self._progress - self._written > self._write_every_s:
            self._says_more = busy_s > 0
            self._write_idle(-busy_s)

    def wait_for(self, idle_s: float, rank: int = NO_RANK) -> None:
        """Report that this worker waits for members of which the liveliest has been idle for `idle_s`.

        `rank` is the one of them that keeps it waiting, if that is known.
        """
        self._says_more = True
        self._write_idle(min(time.monotonic() - self._progress, idle_s), rank)

    def _write_idle(self, idle_s: float, waits_for: int = NO_RANK) -> None:
        self._written = time.monotonic()
        self._count += 1
        self._tell(f"idle/{self._rank}", json.dumps([self._count, idle_s, waits_for]))

    def _tell(self, key: str, value: str) -> None:
        try:
            self._store.set(key, value)
        except RuntimeError:
            # The store is gone with its holder; the next look reports it.
            self._ended = True

    def end(self, error: BaseException | None) -> None:
        """Report why this worker ends: an error, or none. The first report is kept."""
        if self._ended:
            return
        self._ended = True
        words = LastWords.of(error, self._rank)
        words = words._replace(message=words.message[:MOST_CHARACTERS])
        self._tell(f"end/{self._rank}", json.dumps(words))
        if error is not None:
            if isinstance(error, MemberError):
                self._others.discard(error.rank)  # it will not read this
            self._hold_store(HOLD_S, HOLD_S)

    def _leave(self, error: BaseException | None) -> None:
        self.end(error)
        if error is None:
            self._hold_store(self._limit_s)

    def _hold_store(self, silence_s: float, most_s: float = float("inf")) -> None:
        """If this worker holds the store, wait until the others have ended or are silent for that long."""
        others = set(self._others)
        started = heard = time.monotonic()
        entries: dict[int, str] = {}
        while others and time.monotonic() < min(heard + silence_s, started + most_s):
            try:
                for rank in tuple(others):
                    if self._is_out(rank):
                        others.remove(rank)
                    else:
                        end, idle = self._store.read_all([(f"end/{rank}", rank), (f"idle/{rank}", rank)])
                        if end:
                            others.remove(rank)
                        elif idle and entries.get(rank) != idle:
                            entries[rank], busy_s = idle, max(0.0, -stored(idle, int, int | float, int)[1])
                            heard = max(heard, time.monotonic() + busy_s)
                time.sleep(0.02)
            except (RuntimeError, KeyboardInterrupt):
                return
