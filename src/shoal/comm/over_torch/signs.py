"""What a worker tells the others through a store: that it makes progress, where it waits, and why it goes.

Everyone keeps short entries: how long ago it last made progress (`idle`), why it ended (`end`), and which collective
of a group it waits in (`at`). They are written about once a second. `presence.py` reads them.
"""

import json
import time
from collections.abc import Callable
from typing import Any, final

from shoal.comm import stacks
from shoal.comm.goodbye import at_exit
from shoal.errors import MemberError, MismatchError

WRITE_EVERY_S = 0.5
"""And at least four times within the limit after which a silent member is given up."""

HOLD_S = 1.0
"""After an error, how long whoever holds the store keeps it for the others to read of it."""


@final
class Signs:
    """One worker's entries. `others` are the ranks for whom it keeps the store, if that lives in its process."""

    def __init__(
        self, store: Any, rank: int, limit_s: float, others: set[int], is_out: Callable[[int], bool]
    ) -> None:
        self._store, self._rank, self._limit_s = store, rank, limit_s
        self._others, self._is_out = others, is_out
        self._write_every_s = min(WRITE_EVERY_S, limit_s / 4)
        self._progress = time.monotonic()
        self._written = 0.0
        self._promised = False
        self._count = 0
        self._ended = False
        store.set(f"stack/{rank}", str(stacks.listen()))
        store.set(f"end/{rank}", "")
        self._write_idle(0.0)
        self.forget_exit = at_exit(self._leave)

    def enter(self, group: str) -> None:
        """Begin with a new group: nobody waits in it yet."""
        self._store.set(f"at/{group}/{self._rank}", "0")

    def wait_in(self, group: str, sequence: int) -> None:
        """Say which collective of a group we have come to."""
        self._store.set(f"at/{group}/{self._rank}", str(sequence))

    def beat(self, busy_s: float = 0.0) -> None:
        """Note progress, or that there will have been some in so many seconds; tell it now and then."""
        self._progress = time.monotonic()
        if busy_s or self._promised or self._progress - self._written > self._write_every_s:
            self._promised = busy_s > 0
            self._write_idle(-busy_s)

    def wait_for(self, idle_s: float) -> None:
        """Say that we wait for members of whom the liveliest has been idle so long: we are not more stuck than it."""
        self._write_idle(min(time.monotonic() - self._progress, idle_s))

    def _write_idle(self, idle_s: float) -> None:
        self._written = time.monotonic()
        self._count += 1
        self._tell(f"idle/{self._rank}", json.dumps([self._count, idle_s]))

    def _tell(self, key: str, value: str) -> None:
        try:
            self._store.set(key, value)
        except RuntimeError:
            # The store is gone with whoever held it; the next look will say so.
            self._ended = True

    def end(self, error: BaseException | None) -> None:
        """Tell why this worker goes: an error, or nothing. The first reason is kept."""
        if self._ended:
            return
        self._ended = True
        if isinstance(error, MemberError):
            reason, rank, message = error.reason, error.rank, error.message
        elif isinstance(error, MismatchError):
            reason, rank, message = "mismatch", self._rank, error.message
        elif error is not None:
            reason, rank = "failed", self._rank
            message = f"rank {self._rank} failed: {type(error).__name__}: {error}"
        else:
            reason, rank, message = "left", self._rank, ""
        self._tell(f"end/{self._rank}", json.dumps([reason, rank, message]))
        if error is not None:
            self._hold_store(HOLD_S, HOLD_S)

    def _leave(self, error: BaseException | None) -> None:
        """Our process ends."""
        self.end(error)
        if error is None:
            self._hold_store(self._limit_s)

    def _hold_store(self, silence_s: float, most_s: float = float("inf")) -> None:
        """If the store is ours, wait until the others are gone, or silent for so long: they may still need it."""
        others = set(self._others)
        started = heard = time.monotonic()
        entries: dict[int, bytes] = {}
        while others and time.monotonic() < min(heard + silence_s, started + most_s):
            try:
                for rank in tuple(others):
                    if self._is_out(rank):
                        others.remove(rank)
                    elif self._store.check([f"end/{rank}", f"idle/{rank}"]):
                        end, idle = self._store.multi_get([f"end/{rank}", f"idle/{rank}"])
                        if end:
                            others.remove(rank)
                        elif entries.get(rank) != idle:
                            entries[rank], busy_s = idle, max(0.0, -json.loads(idle)[1])
                            heard = max(heard, time.monotonic() + busy_s)
                time.sleep(0.02)
            except (RuntimeError, KeyboardInterrupt):
                return
