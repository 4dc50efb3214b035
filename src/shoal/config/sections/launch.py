"""How many workers there are, how they run, and which conditions they run under."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.conditions import Bottleneck, Fault, Link, check_distinct, check_ranks, shares_of
from shoal.config.kinds import Checked, Several
from shoal.config.sections.values import Count
from shoal.errors import ConfigError


@dataclass(frozen=True)
class LaunchConfig(Checked):
    """How many workers there are, how they run, and how they communicate."""

    workers: Count = 1
    """Workers on this machine. Started by hand or by torchrun, the world's size is taken instead."""
    launcher: Literal["processes", "threads"] = "processes"
    """What a worker is; as threads, a breakpoint works in every rank."""
    group: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    """How processes communicate; auto: shared memory on one machine, gloo elsewhere, nccl where each has a GPU."""
    bottleneck: Annotated[tuple[Bottleneck, ...], Several()] = ()
    """Slow a worker, "rank=1,slowdown=3" or "rank=1,delay=20ms" (0-40ms: random), or load it: "rank=1,share=0.8"."""
    link: Annotated[tuple[Link, ...], Several()] = ()
    """Rate and latency between two workers, "0-1:100mbit,5ms", or between all: "all:1gbit"."""
    fault: Annotated[tuple[Fault, ...], Several()] = ()
    """Make a worker send bad gradients, "rank=1,gradient=nan" (inf, huge, flip, stale), from a step on: ",step=10"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for conditions in (self.bottleneck, self.link, self.fault):
            check_distinct(conditions)
        if self.link and self.launcher == "processes" and self.group in ("shm", "nccl"):
            why = "shared memory" if self.group == "shm" else "nccl"
            raise ConfigError(
                f"{why} sends no messages through the processor, so --link has no effect on it",
                "Leave --group out, or use --group gloo.",
            )

    @property
    def group_kind(self) -> str:
        """The kind of group that processes form: links need messages, and shared memory sends none."""
        return "gloo" if self.link and self.group == "auto" else self.group

    def check_workers(self, size: int) -> None:
        """Refuse conditions that do not fit a world of this size."""
        for conditions in (self.bottleneck, self.link, self.fault):
            check_ranks(conditions, size)
        if self.link and size == 1:
            raise ConfigError(
                f"link '{self.link[0]}' needs two workers, and there is only one", "Start more: --workers 2"
            )
        shares_of(self.bottleneck, size)
