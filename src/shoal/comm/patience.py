"""For those who ask whether a work is done, again and again, instead of waiting: now and then they look around, too."""

import time
from typing import final

LOOK_EVERY_S = 0.1
PAUSED_S = 1.0
"""A gap this long means that we ourselves were stopped, or had other things to do: patience begins anew."""


@final
class Patience:
    """How long somebody has been asking for one thing without a break.

    >>> patience = Patience()
    >>> patience.to_look() is None
    True
    """

    __slots__ = ("_next_look", "_previous", "_started")

    def __init__(self) -> None:
        self._started = self._next_look = self._previous = 0.0

    def to_look(self) -> float | None:
        """How long it has lasted, when it is time to look for members that will never come; else None."""
        now = time.monotonic()
        if now - self._previous > PAUSED_S:
            self._started, self._next_look = now, now + LOOK_EVERY_S
        self._previous = now
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_EVERY_S
        return now - self._started
