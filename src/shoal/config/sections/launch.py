"""How many workers there are, what they are, and what is put in their way."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.conditions import Bottleneck, Fault, Link, parse_bottleneck, parse_fault, parse_link
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
    """Through what processes talk; auto: shared memory on one machine, gloo elsewhere."""
    bottleneck: Texts = ()
    """Slow a worker, "rank=1,slowdown=3" or "rank=1,delay=20ms" (0-40ms: random), or load it: "rank=1,share=0.8"."""
    link: Texts = ()
    """What lies between two workers, "0-1:100mbit,5ms", or between all: "all:1gbit"."""
    fault: Texts = ()
    """Make a worker send bad gradients, "rank=1,gradient=nan" (or inf, huge, flip), from a step on: ",step=10"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for conditions in (self.bottlenecks, self.links, self.faults):
            conditions()  # what cannot be read is refused now
        if self.link and self.group == "shm" and self.launcher == "processes":
            raise ConfigError(
                "shared memory moves without sending, so no --link can slow it",
                "Leave --group out, or use --group gloo.",
            )

    def bottlenecks(self) -> list[Bottleneck]:
        """The slow workers."""
        return [parse_bottleneck(text) for text in self.bottleneck]

    def links(self) -> list[Link]:
        """The slow links."""
        return [parse_link(text) for text in self.link]

    def faults(self) -> list[Fault]:
        """The bad workers."""
        return [parse_fault(text) for text in self.fault]
