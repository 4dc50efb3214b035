"""Conditions that users impose on a run: slow workers, slow links, bad gradients.

Each is written as one string. It is parsed once, when the settings are built, and kept beside the parsed values.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from shoal.errors import ConfigError, unknown

GradientFault = Literal["nan", "inf", "huge", "flip", "stale"]
"""NaN, infinite, a million times too long, with the wrong sign, or computed at the initial weights."""

LONGEST_TEXT = 200
"""Characters of one condition."""


@dataclass(frozen=True)
class Condition:
    """The base of all conditions: the user's string."""

    KIND: ClassVar[str]
    text: str = field(default="", kw_only=True, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Bottleneck(Condition):
    """A worker that is slower than the others, or has more to do."""

    KIND = "bottleneck"
    rank: int
    slowdown: float = 1.0
    """Its computation takes this many times as long."""
    delay_s: tuple[float, float] = (0.0, 0.0)
    """Each step takes longer by a time drawn uniformly from this range."""
    share: float | None = None
    """Its part of every batch; the others divide the rest equally."""

    @classmethod
    def from_text(cls, text: str) -> "Bottleneck":
        """Parse a bottleneck.

        >>> Bottleneck.from_text("rank=1,slowdown=3")
        Bottleneck(rank=1, slowdown=3.0, delay_s=(0.0, 0.0), share=None)
        >>> Bottleneck.from_text("rank=0,delay=0-40ms").delay_s
        (0.0, 0.04)
        """
        options = _Options(cls.KIND, text, ("rank", "slowdown", "delay", "share"))
        if options.values.keys() == {"rank"}:
            raise ConfigError(
                f"bottleneck '{text}' has no effect", "Add slowdown=3, delay=20ms, delay=0-40ms or share=0.8."
            )
        slowdown = options.number("slowdown", "1")
        if slowdown < 1:
            raise options.error(f"expected slowdown ≥ 1, got {slowdown:g}")
        share = options.number("share") if "share" in options.values else None
        if share is not None and share > 1:
            raise options.error(f"expected a share from 0 to 1, got {share:g}")
        return cls(options.whole_number("rank"), slowdown, options.delay_s(), share, text=text)


@dataclass(frozen=True)
class Link(Condition):
    """The connection of two workers, in either direction; without ends, of any two."""

    KIND = "link"
    ends: tuple[int, int] | None
    bits_per_s: float
    latency_s: float = 0.0

    @classmethod
    def from_text(cls, text: str) -> "Link":
        """Parse a link: the ends, the rate and, optionally, the latency.

        >>> Link.from_text("0-1:100mbit,5ms")
        Link(ends=(0, 1), bits_per_s=100000000.0, latency_s=0.005)
        """
        _check_length(cls.KIND, text)
        ends_text, _, rest = text.partition(":")
        rate_text, _, latency_text = (part.strip() for part in rest.partition(","))
        ends = re.fullmatch(r"\s*([0-9]{1,9})\s*-\s*([0-9]{1,9})\s*", ends_text)
        rate = re.fullmatch(r"([0-9]{1,12}\.?[0-9]{0,12})\s*([kmg]?)bit(/s)?", rate_text.lower())
        if not (ends or ends_text.strip() == "all") or not rate:
            raise ConfigError(
                f"cannot parse link '{text}'",
                'Write two workers, a rate and a latency: "0-1:100mbit,5ms".',
            )
        bits_per_s = float(rate[1]) * {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}[rate[2]]
        if bits_per_s == 0:
            raise ConfigError(f"link '{text}' has a rate of 0: no message would ever arrive")
        if ends and ends[1] == ends[2]:
            raise ConfigError(f"link '{text}' connects worker {ends[1]} with itself")
        pair = (min(int(ends[1]), int(ends[2])), max(int(ends[1]), int(ends[2]))) if ends else None
        latency_s = _seconds(f"link '{text}'", latency_text) if latency_text else 0.0
        return cls(pair, bits_per_s, latency_s, text=text)


@dataclass(frozen=True)
class Fault(Condition):
    """A worker whose gradients are bad."""

    KIND = "fault"
    rank: int
    gradient: GradientFault
    step: int = 0
    """The first bad step."""

    @classmethod
    def from_text(cls, text: str) -> "Fault":
        """Parse a fault.

        >>> Fault.from_text("rank=1,gradient=flip,step=10")
        Fault(rank=1, gradient='flip', step=10)
        """
        options = _Options(cls.KIND, text, ("rank", "gradient", "step"))
        gradient = options.values.get("gradient")
        if gradient is None:
            raise ConfigError(
                f"fault '{text}' has no gradient=…", "Add gradient=nan, inf, huge, flip or stale."
            )
        if gradient not in get_args(GradientFault):
            raise options.error(unknown("gradient", gradient, get_args(GradientFault)))
        rank, step = options.whole_number("rank"), options.whole_number("step", "0")
        return cls(rank, gradient, step, text=text)  # pyright: ignore[reportArgumentType]


def _ranks(condition: Bottleneck | Link | Fault) -> tuple[int, ...]:
    """The workers that a condition names; none if it is about every link."""
    return (condition.ends or ()) if isinstance(condition, Link) else (condition.rank,)


def check_distinct(conditions: Sequence[Bottleneck | Link | Fault]) -> None:
    """Refuse two conditions of one kind for the same worker or the same link."""
    seen: dict[tuple[int, ...], Condition] = {}
    for each in conditions:
        other = seen.setdefault(_ranks(each), each)
        if other is not each:
            target = "link" if isinstance(each, Link) else "worker"
            raise ConfigError(
                f"{each.KIND}s '{other}' and '{each}' are for the same {target}",
                "Combine them." if isinstance(each, Bottleneck) else "Remove one of them.",
            )


def check_ranks(conditions: Sequence[Bottleneck | Link | Fault], size: int) -> None:
    """Refuse a condition for a rank that does not exist."""
    for each in conditions:
        for rank in _ranks(each):
            if rank >= size:
                there = f"there are only {size}: 0 to {size - 1}" if size > 1 else "there is only worker 0"
                raise ConfigError(
                    f"{each.KIND} '{each}' names worker {rank}, but {there}",
                    f"Name another worker, or use --workers {rank + 1}.",
                )


def shares_of(bottlenecks: Sequence[Bottleneck], size: int) -> tuple[float, ...]:
    """The workers' shares of every batch: as the bottlenecks set them; the others divide the rest equally.

    >>> shares_of([Bottleneck(rank=1, share=0.8)], size=3)
    (0.1, 0.8, 0.1)
    """
    stated = {each.rank: each.share for each in bottlenecks if each.share is not None}
    others, rest = size - len(stated), 1 - math.fsum(stated.values())
    if rest < -1e-9 or (not others and rest > 1e-9):
        limit = "at most 1" if others else "1, because every worker has one"
        raise ConfigError(
            f"the shares of the bottlenecks add up to {math.fsum(stated.values()):g} and must add up to {limit}"
        )
    each = round(max(0.0, rest) / others, 12) if others else 0.0
    return tuple(stated.get(rank, each) for rank in range(size))


class _Options:
    """The text `key=value,key=value` of one condition."""

    def __init__(self, kind: str, text: str, known: tuple[str, ...]) -> None:
        _check_length(kind, text)
        self._where = f"{kind} '{text}'"
        self.values: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise ConfigError(f"{self._where}: expected key=value, got '{part.strip()}'")
            if key not in known:
                raise self.error(unknown("key", key, known))
            if key in self.values:
                raise ConfigError(f"{self._where} sets {key} twice")
            self.values[key] = value
        if "rank" not in self.values:
            raise ConfigError(f"{self._where} names no worker", f'Begin with rank=1: "rank=1,{text}"')

    def error(self, message: str) -> ConfigError:
        """An error about this text."""
        return ConfigError(f"{self._where}: {message}")

    def whole_number(self, key: str, default: str = "") -> int:
        value = self.values.get(key, default)
        if not re.fullmatch("[0-9]{1,9}", value):
            raise self.error(f"expected an integer ≥ 0 for {key}, got '{value}'")
        return int(value)

    def number(self, key: str, default: str = "") -> float:
        value = self.values.get(key, default)
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,12})?|\.[0-9]{1,12}", value):
            raise self.error(f"expected a number for {key}, got '{value}'")
        return float(value)

    def delay_s(self) -> tuple[float, float]:
        """A time, or a range of times; the unit after a range is that of both bounds."""
        value = self.values.get("delay", "0s")
        low, _, high = value.partition("-")
        if high and not re.search(r"[a-zµ]", low):
            low += re.sub(r"[\d.]", "", high)
        bounds = _seconds(self._where, low), _seconds(self._where, high or low)
        if bounds[0] > bounds[1]:
            raise self.error(f"expected delay=MIN-MAX, got '{value}'")
        return bounds


def _check_length(kind: str, text: str) -> None:
    """Refuse a text that could not be shown in a sentence."""
    if len(text) > LONGEST_TEXT:
        raise ConfigError(f"a {kind} has at most {LONGEST_TEXT} characters, got {len(text)}")


def _seconds(where: str, value: str) -> float:
    found = re.fullmatch(r"\s*([0-9]{1,9}\.?[0-9]{0,12})\s*(us|µs|ms|s)\s*", value)
    if not found:
        raise ConfigError(f"{where}: expected a time, got '{value}'", "Write 20ms, 0.5s or 300us.")
    return float(found[1]) * {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]
