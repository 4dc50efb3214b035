"""Settings of the workers: how many, how they run, and under which conditions."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.choices import Checked
from shoal.config.conditions import Bottleneck, Fault, Link, check_distinct, check_ranks, shares_of
from shoal.config.kinds import Several
from shoal.config.sections.values import Count, Seconds
from shoal.errors import ConfigError


@dataclass(frozen=True)
class LaunchConfig(Checked):
    """The number of workers, how they run, and how they communicate."""

    workers: Count = 1
    """Workers to start on this machine, by default as ddp; ignored if you start them by hand or with torchrun."""
    launcher: Literal["processes", "threads", "netns"] = "processes"
    """Run workers as processes, as threads of one process (a breakpoint then works in every rank), or on virtual
    machines that Linux namespaces make (netns)."""
    nodes: Count = 1
    """Virtual machines of --launcher netns; they share the workers evenly, and --link all:RATE shapes their cards."""
    group: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    """Communication backend; auto: shared memory on one machine, else gloo; nccl if each worker has a GPU."""
    timeout: Seconds | None = None
    """Seconds without progress after which a worker counts as lost; default: SHOAL_TIMEOUT_S, or 60."""
    bottleneck: Annotated[tuple[Bottleneck, ...], Several()] = ()
    """Slow a worker down, "rank=1,slowdown=3" or "rank=1,delay=0-40ms", or give it more work: "rank=1,share=0.8"."""
    link: Annotated[tuple[Link, ...], Several()] = ()
    """Limit rate and latency between two workers, "0-1:100mbit,5ms", or all of them: "all:1gbit"."""
    fault: Annotated[tuple[Fault, ...], Several()] = ()
    """Make a worker send bad gradients: "rank=1,gradient=nan" (or inf, huge, flip, stale); from step 10: ",step=10"."""

    i_trust_this_network: bool = False
    """Let workers that execute what they receive (--strategy rpc) listen on an address other than loopback."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for conditions in (self.bottleneck, self.link, self.fault):
            check_distinct(conditions)
        if self.link and self.launcher == "processes" and self.group == "nccl":
            raise ConfigError(
                "nccl sends no messages through the processor, so --link has no effect on it",
                "Leave --group out.",
            )
        self._check_nodes()

    def _check_nodes(self) -> None:
        if self.launcher != "netns":
            if self.nodes > 1:
                raise ConfigError(f"{self.nodes} nodes need virtual machines", "Add --launcher netns.")
            return
        if self.nodes > self.workers:
            raise ConfigError(
                f"{self.nodes} nodes for {self.workers} workers", f"Use at least --workers {self.nodes}."
            )
        if len(self.link) > 1 or any(each.ends or each.latency_s for each in self.link):
            raise ConfigError(
                "--launcher netns shapes the network card of every node, with one rate and no latency",
                "Write --link all:RATE, or use --launcher processes, which simulates links.",
            )

    def check_workers(self, size: int, servers: int = 0) -> None:
        """Refuse conditions that do not fit a world of this size; links may end at a parameter server, too."""
        for conditions in (self.bottleneck, self.fault):
            check_ranks(conditions, size)
        check_ranks(self.link, size + servers)
        if self.link and size + servers == 1:
            raise ConfigError(
                f"link '{self.link[0]}' needs at least 2 workers, but there is 1", "Use --workers 2."
            )
        shares_of(self.bottleneck, size)
