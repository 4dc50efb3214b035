"""The choice among exchanges: what each would cost in a step, and the rule that picks one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal.strategies.exchange.echo import GroupCall
from shoal.strategies.exchange.link_times import LinkTimes, received_bytes

CLOSE = 1.05
"""A candidate that takes at most this many times the shortest time is as good as the fastest."""


class CodecNotice(UserWarning):
    """Reports which codec the workers chose, and why; not a problem."""


@dataclass(frozen=True)
class Candidate:
    """What one exchange costs in a step."""

    name: str
    local_s: float
    """Encoding and decoding, on the slowest worker."""
    messages: Sequence[GroupCall]
    """The collectives of one worker in a step."""

    def sent_bytes(self, size: int) -> float:
        """What one of `size` workers sends in its collectives, and receives."""
        return math.fsum(received_bytes(message, size) for message in self.messages)

    def seconds(self, link: LinkTimes) -> float:
        """The predicted time of the exchange in a step: computation, then one message after the other."""
        return self.local_s + math.fsum(link.seconds(message) for message in self.messages)

    def break_even_bits_per_s(self, dense: "Candidate", size: int) -> float:
        """The link rate above which encoding and decoding take longer than the bytes that they save.

        0 where nothing is saved, infinite where it costs nothing.
        """
        saved = dense.sent_bytes(size) - self.sent_bytes(size)
        extra_s = self.local_s - dense.local_s
        if saved <= 0:
            return 0.0
        return 8 * saved / extra_s if extra_s > 0 else math.inf


@dataclass(frozen=True)
class Choice:
    """The measurements of all candidates, and the one that was chosen from them.

    The first candidate whose predicted time is within 5 % of the shortest: candidates are listed by preference, the
    most precise first.
    """

    link: LinkTimes
    candidates: Sequence[Candidate]
    dense: Candidate
    """Uncompressed, also where that is no candidate."""

    @property
    def chosen(self) -> Candidate:
        """What the rule picks."""
        shortest = min(self._seconds(each) for each in self.candidates)
        return next(each for each in self.candidates if self._seconds(each) <= CLOSE * shortest)

    @property
    def reason(self) -> str:
        """The predicted times, in one phrase."""
        chosen, rate = self.chosen, in_bits(self.link.bits_per_s)
        took = f"predicted exchange of {self._in_ms(chosen)} per step on links of {rate}"
        if chosen.messages != self.dense.messages:
            return f"{took}, {self._in_ms(self.dense)} without compression"
        others = [each for each in self.candidates if each is not chosen]
        best = min(others, key=self._seconds, default=None)
        return f"{took}, {self._in_ms(best)} with the fastest codec ({best.name})" if best else took

    def record(self) -> dict[str, Any]:
        """The event of the choice."""
        return {
            "event": "codec",
            "chosen": self.chosen.name,
            "reason": self.reason,
            "link_bits_per_s": round(self.link.bits_per_s),
            "candidates": [self._row(each) for each in self.candidates],
        }

    def _seconds(self, candidate: Candidate) -> float:
        return candidate.seconds(self.link)

    def _in_ms(self, candidate: Candidate) -> str:
        return f"{1e3 * self._seconds(candidate):,.1f} ms"

    def _row(self, candidate: Candidate) -> dict[str, Any]:
        break_even = candidate.break_even_bits_per_s(self.dense, self.link.size)
        return {
            "codec": candidate.name,
            "encode_decode_ms": round(1e3 * candidate.local_s, 4),
            "bytes": round(candidate.sent_bytes(self.link.size)),
            "predicted_ms": round(1e3 * self._seconds(candidate), 4),
            "break_even_gbit_s": round(break_even / 1e9, 4) if math.isfinite(break_even) else None,
        }


def in_bits(bits_per_s: float) -> str:
    """A rate with its unit.

    >>> in_bits(98.31e6), in_bits(12.04e9)
    ('98.3 Mbit/s', '12 Gbit/s')
    """
    factor, unit = (1e9, "G") if bits_per_s >= 1e9 else (1e6, "M")
    return f"{bits_per_s / factor:.3g} {unit}bit/s"
