"""Conditions a run is put under on purpose: slow workers, slow links, bad gradients; each read from one text."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from shoal.errors import ConfigError, unknown

GradientFault = Literal["nan", "inf", "huge", "flip", "stale"]
"""Not a number, infinite, a million times as long, with the wrong sign, or at weights that no update reaches."""


@dataclass(frozen=True)
class Bottleneck:
    """A worker that is slower than the others, or has more to do."""

    rank: int
    slowdown: float = 1.0
    """Its computation takes this many times as long."""
    delay_s: tuple[float, float] = (0.0, 0.0)
    """Every step takes longer by a time drawn evenly from this range."""
    share: float | None = None
    """Its part of every batch; the others divide the rest."""


@dataclass(frozen=True)
class Link:
    """What lies between two workers, in either direction; no ends: between any two."""

    ends: tuple[int, int] | None
    bits_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Fault:
    """A worker whose gradients are bad."""

    rank: int
    gradient: GradientFault
    step: int = 0
    """The first bad step."""


def parse_bottleneck(text: str) -> Bottleneck:
    """A bottleneck as it is written.

    >>> parse_bottleneck("rank=1,slowdown=3")
    Bottleneck(rank=1, slowdown=3.0, delay_s=(0.0, 0.0), share=None)
    >>> parse_bottleneck("rank=0,delay=0-40ms").delay_s
    (0.0, 0.04)
    """
    settings = _settings("bottleneck", text, ("rank", "slowdown", "delay", "share"))
    slowdown = _number("bottleneck", text, settings.get("slowdown", "1"))
    if slowdown < 1:
        raise ConfigError(f"bottleneck '{text}': slowdown must be at least 1, not {slowdown:g}")
    share = _number("bottleneck", text, settings["share"]) if "share" in settings else None
    if share is not None and not 0 <= share <= 1:
        raise ConfigError(f"bottleneck '{text}': share is a part of the batch, from 0 to 1, not {share:g}")
    if settings.keys() == {"rank"}:
        raise ConfigError(
            f"bottleneck '{text}' slows nothing", "Add slowdown=3, delay=20ms, delay=0-40ms or share=0.8."
        )
    delay = _delay("bottleneck", text, settings.get("delay", "0s"))
    return Bottleneck(_rank("bottleneck", text, settings), slowdown, delay, share)


def parse_link(text: str) -> Link:
    """A link as it is written: the ends, the rate, and the latency if there is any.

    >>> parse_link("0-1:100mbit,5ms")
    Link(ends=(0, 1), bits_per_s=100000000.0, latency_s=0.005)
    """
    ends_text, _, rest = text.partition(":")
    rate_text, _, latency_text = (part.strip() for part in rest.partition(","))
    ends = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", ends_text)
    rate = re.fullmatch(r"(\d+\.?\d*)\s*([kmg]?)bit(/s)?", rate_text.lower())
    if not (ends or ends_text.strip() == "all") or not rate:
        raise ConfigError(
            f"'{text}' is not a link", 'Write the two workers, the rate and the latency: "0-1:100mbit,5ms".'
        )
    bits_per_s = float(rate[1]) * {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}[rate[2]]
    if bits_per_s == 0:
        raise ConfigError(f"link '{text}' has no bandwidth: nothing would ever arrive")
    if ends and ends[1] == ends[2]:
        raise ConfigError(f"link '{text}' leads from worker {ends[1]} to itself")
    pair = (min(int(ends[1]), int(ends[2])), max(int(ends[1]), int(ends[2]))) if ends else None
    return Link(pair, bits_per_s, _seconds("link", text, latency_text) if latency_text else 0.0)


def parse_fault(text: str) -> Fault:
    """A fault as it is written.

    >>> parse_fault("rank=1,gradient=flip,step=10")
    Fault(rank=1, gradient='flip', step=10)
    """
    settings = _settings("fault", text, ("rank", "gradient", "step"))
    if "gradient" not in settings:
        raise ConfigError(
            f"fault '{text}' does not say what is wrong", "Add gradient=nan, inf, huge, flip or stale."
        )
    kind = settings["gradient"]
    if kind not in get_args(GradientFault):
        raise ConfigError(f"fault '{text}': {unknown('gradient', kind, get_args(GradientFault))}")
    step = settings.get("step", "0")
    if not step.isdigit():
        raise ConfigError(f"fault '{text}': step must be a whole number, not '{step}'")
    return Fault(_rank("fault", text, settings), kind, int(step))  # pyright: ignore[reportArgumentType]


def check_once(kind: str, named: Mapping[str, object]) -> None:
    """Refuse two conditions of a kind for one worker, or one link; `named` has what each text is for."""
    texts: dict[object, str] = {}
    for text, what in named.items():
        if what in texts:
            raise ConfigError(
                f"{kind}s '{texts[what]}' and '{text}' are for the same {'link' if kind == 'link' else 'worker'}",
                "Write them as one." if kind == "bottleneck" else "Leave one of them out.",
            )
        texts[what] = text


def check_ranks(kind: str, size: int, named: Mapping[str, Sequence[int]]) -> None:
    """Refuse a condition for a worker that is not there; `named` has the ranks that each text names."""
    for text, ranks in named.items():
        for rank in ranks:
            if rank >= size:
                there = f"there are only {size}: 0 to {size - 1}" if size > 1 else "there is only worker 0"
                raise ConfigError(
                    f"{kind} '{text}' names worker {rank}, and {there}",
                    f"Name one that is there, or start more: --workers {rank + 1}",
                )


def shares_of(bottlenecks: Sequence[Bottleneck], size: int) -> tuple[float, ...]:
    """The workers' parts of every batch: what bottlenecks say, and the rest in equal parts.

    >>> shares_of([Bottleneck(rank=1, share=0.8)], size=3)
    (0.1, 0.8, 0.1)
    """
    stated = {each.rank: each.share for each in bottlenecks if each.share is not None}
    others, rest = size - len(stated), 1 - math.fsum(stated.values())
    if rest < -1e-9 or (not others and rest > 1e-9):
        raise ConfigError(
            f"the shares of bottlenecks make {math.fsum(stated.values()):g} of a batch, and it has to be "
            + ("1: every worker has one" if not others else "1 at most"),
        )
    each = round(max(0.0, rest) / others, 12) if others else 0.0
    return tuple(stated.get(rank, each) for rank in range(size))


def _settings(kind: str, text: str, known: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ConfigError(f"'{part.strip()}' in {kind} '{text}' is not of the form key=value")
        if key not in known:
            raise ConfigError(f"{kind} '{text}': {unknown('key', key, known)}")
        if key in settings:
            raise ConfigError(f"{kind} '{text}' says {key} twice")
        settings[key] = value
    if "rank" not in settings:
        raise ConfigError(f"{kind} '{text}' names no worker", f'Begin with rank=1: "rank=1,{text}"')
    return settings


def _rank(kind: str, text: str, settings: dict[str, str]) -> int:
    if not settings["rank"].isdigit():
        raise ConfigError(f"{kind} '{text}': rank must be a whole number, not '{settings['rank']}'")
    return int(settings["rank"])


def _number(kind: str, text: str, value: str) -> float:
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", value):
        raise ConfigError(f"{kind} '{text}': '{value}' is not a number")
    return float(value)


def _delay(kind: str, text: str, value: str) -> tuple[float, float]:
    low, dash, high = value.partition("-")
    if not dash:
        return (seconds := _seconds(kind, text, low)), seconds
    unit = re.sub(r"[\d.]", "", high)
    bounds = (
        _seconds(kind, text, low if re.search(r"[a-zµ]", low) else low + unit),
        _seconds(kind, text, high),
    )
    if bounds[0] > bounds[1]:
        raise ConfigError(f"{kind} '{text}': the delay's range '{value}' runs backwards")
    return bounds


def _seconds(kind: str, text: str, value: str) -> float:
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*(us|µs|ms|s)\s*", value)
    if not found:
        raise ConfigError(f"{kind} '{text}': '{value}' is not a time", "Write 20ms, 0.5s or 300us.")
    return float(found[1]) * {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]
