"""How many workers there are, what they are, and what is put in their way."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.conditions import (
    Bottleneck,
    Fault,
    Link,
    check_once,
    check_ranks,
    parse_bottleneck,
    parse_fault,
    parse_link,
    shares_of,
)
from shoal.config.kinds import Checked, Several
from shoal.config.sections.values import Count
from shoal.errors import ConfigError

Texts = Annotated[tuple[str, ...], Several()]


@dataclass(frozen=True)
class LaunchConfig(Checked):
    """How many workers there are, what they are, and through what they talk."""

    workers: Count = 1
    """Workers on this machine. Started by hand or by torchrun, the world's size is taken instead."""
    launcher: Literal["processes", "threads"] = "processes"
    """What a worker is; as threads, a breakpoint works in every rank."""
    group: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    """Through what processes talk; auto: shared memory on one machine, gloo elsewhere, nccl where each has a GPU."""
    bottleneck: Texts = ()
    """Slow a worker, "rank=1,slowdown=3" or "rank=1,delay=20ms" (0-40ms: random), or load it: "rank=1,share=0.8"."""
    link: Texts = ()
    """What lies between two workers, "0-1:100mbit,5ms", or between all: "all:1gbit"."""
    fault: Texts = ()
    """Make a worker send bad gradients, "rank=1,gradient=nan" (inf, huge, flip, stale), from a step on: ",step=10"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # What cannot be read is refused now, and what is said twice too.
        check_once("bottleneck", {text: parse_bottleneck(text).rank for text in self.bottleneck})
        check_once("link", {text: parse_link(text).ends for text in self.link})
        check_once("fault", {text: parse_fault(text).rank for text in self.fault})
        if self.link and self.launcher == "processes" and self.group in ("shm", "nccl"):
            why = "shared memory" if self.group == "shm" else "nccl"
            raise ConfigError(
                f"{why} moves without sending through the processor, so no --link can slow it",
                "Leave --group out, or use --group gloo.",
            )

    @property
    def group_kind(self) -> str:
        """The kind of group that processes form: links lie between messages, and shared memory sends none."""
        return "gloo" if self.link and self.group == "auto" else self.group

    def check_workers(self, size: int) -> None:
        """Refuse conditions that do not fit a world of this size."""
        check_ranks("bottleneck", size, {text: [parse_bottleneck(text).rank] for text in self.bottleneck})
        check_ranks("link", size, {text: parse_link(text).ends or () for text in self.link})
        check_ranks("fault", size, {text: [parse_fault(text).rank] for text in self.fault})
        if self.link and size == 1:
            raise ConfigError(
                f"link '{self.link[0]}' lies between workers, and there is only one",
                "Start more: --workers 2",
            )
        shares_of(self.bottlenecks(), size)

    def bottlenecks(self) -> list[Bottleneck]:
        """The slow workers."""
        return [parse_bottleneck(text) for text in self.bottleneck]

    def stated_shares(self) -> list[tuple[str, float | None]]:
        """The part of a batch that each bottleneck states, with the bottleneck as the user wrote it."""
        return [(text, each.share) for text, each in zip(self.bottleneck, self.bottlenecks(), strict=True)]

    def links(self) -> list[Link]:
        """The slow links."""
        return [parse_link(text) for text in self.link]

    def faults(self) -> list[Fault]:
        """The bad workers."""
        return [parse_fault(text) for text in self.fault]
