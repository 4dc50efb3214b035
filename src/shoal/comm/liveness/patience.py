"""Rate-limits liveness checks while a caller polls `Work.done`."""

import time
from typing import final

from shoal.comm.liveness.judge import PAUSED_S

LOOK_EVERY_S = 0.1


@final
class Patience:
    """How long a caller has polled one work without a pause.

    >>> patience = Patience()
    >>> patience.to_look() is None
    True
    """

    __slots__ = ("_next_look", "_previous", "_started")

    def __init__(self) -> None:
        self._started = self._next_look = self._previous = 0.0

    def to_look(self) -> float | None:
        """How long it has polled, when the next check for members that are gone is due; else None."""
        now = time.monotonic()
        if now - self._previous > PAUSED_S:
            self._started, self._next_look = now, now + LOOK_EVERY_S
        self._previous = now
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_EVERY_S
        return now - self._started
