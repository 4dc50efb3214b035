"""Conditions a run is put under on purpose: slow workers, slow links, bad gradients; each read from one text."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from shoal.errors import ConfigError, unknown

GradientFault = Literal["nan", "inf", "huge", "flip"]


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
    rate = re.fullmatch(r"(\d+\.?\d*)\s*([kmg]?)bit", rate_text)
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
    kind = settings.get("gradient", "")
    if kind not in get_args(GradientFault):
        raise ConfigError(f"fault '{text}': {unknown('gradient', kind, get_args(GradientFault))}")
    step = settings.get("step", "0")
    if not step.isdigit():
        raise ConfigError(f"fault '{text}': step must be a whole number, not '{step}'")
    return Fault(_rank("fault", text, settings), kind, int(step))  # pyright: ignore[reportArgumentType]


def check_ranks(size: int, ranks: "dict[str, list[int]]") -> None:
    """Refuse a condition for a worker that is not there; `ranks` has the ranks that each text names."""
    for text, named in ranks.items():
        for rank in named:
            if rank >= size:
                raise ConfigError(
                    f"'{text}' names worker {rank}, and there are only {size}: 0 to {size - 1}",
                    f"Name one of those, or start more: --workers {rank + 1}",
                )


def _settings(kind: str, text: str, known: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ConfigError(f"'{part.strip()}' in {kind} '{text}' is not of the form key=value")
        if key not in known:
            raise ConfigError(f"{kind} '{text}': {unknown('key', key, known)}")
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
