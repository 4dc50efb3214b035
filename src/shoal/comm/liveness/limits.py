"""How long to wait for a member that is silent, what a member may announce, and how often to look while polling."""

import math
import os
import time
from collections.abc import Mapping
from typing import Annotated, final

from shoal.config.arguments import check_argument
from shoal.config.kinds import AtLeast, AtMost
from shoal.errors import ConfigError
from shoal.printable import shortened

NO_PROGRESS_LIMIT_S = 1800.0
"""How long a member of a user's program may show no progress before the others give it up: torch's own default."""
TRAIN_LIMIT_S = 60.0
"""The same in `shoal train`, beyond the work that a worker announces."""
VARIABLE = "SHOAL_TIMEOUT_S"
SETTINGS = (
    f"Set another limit with {VARIABLE}, join(limit_s=…), `shoal launch --timeout` or "
    "`shoal train --launch.timeout`."
)
BUSY_S = 300.0
"""What a member announces before it reads data, saves or evaluates: `beat(BUSY_S)`."""
MOST_S = 86400.0 * 365
"""The longest limit: more overflows the clocks of the libraries below."""

_Announced = Annotated[float, AtLeast(0.0), AtMost(MOST_S)]

PAUSED_S = 1.0
"""A gap this long between two checks means that this process was paused or busy: the wait counts from anew."""

LOOK_EVERY_S = 0.1


def limit_of(
    given_s: float | None, default_s: float = NO_PROGRESS_LIMIT_S, environment: Mapping[str, str] = os.environ
) -> float:
    """The limit for a silent member: as given, else the variable SHOAL_TIMEOUT_S, else the default.

    >>> limit_of(5.0), limit_of(None, environment={"SHOAL_TIMEOUT_S": "90"}), limit_of(None, environment={})
    (5.0, 90.0, 1800.0)
    """
    if given_s is not None:
        return given_s
    text = environment.get(VARIABLE, "")
    if not text:
        return default_s
    try:
        limit_s = float(text) if text.isascii() else math.nan
    except ValueError:
        limit_s = math.nan
    if not 0 < limit_s <= MOST_S:
        raise ConfigError(
            f"{VARIABLE}: expected seconds > 0 and <= {MOST_S:g}, got '{shortened(text)}'",
            f"Unset it for the default, {default_s:g} s.",
        )
    return limit_s


def check_busy(busy_s: float) -> None:
    """Refuse an announced time that is no time; `beat` calls it."""
    if not (isinstance(busy_s, float) and busy_s == 0.0):  # pyright: ignore[reportUnnecessaryIsInstance]
        check_argument(_Announced, busy_s, "beat", "busy_s")


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
