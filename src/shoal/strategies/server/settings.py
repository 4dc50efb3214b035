"""Settings of the parameter server."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from shoal.config.choices import Checked
from shoal.config.feature import Row, refused
from shoal.config.kinds import AtLeast
from shoal.config.sections.values import Count, NonNegative
from shoal.errors import ConfigError

DEFAULT_STALENESS = 3


@dataclass(frozen=True)
class ServerConfig(Checked):
    """Parameter servers hold the weights; workers pull them, compute gradients, and push these."""

    REFUSES: ClassVar[Row] = {
        **refused("--exchange by", "--exchange stages", "own exchange", why="workers exchange no gradients"),
        "--device cuda": "",
        "--exchange compressed:auto": "it compares codecs by the time of an exchange among all workers",
        "--exchange.vote": "a server decodes each push by itself",
        "--balance": "--strategy.mode asp gives fast workers more of the work",
    }

    name: Literal["server"] = "server"
    mode: Literal["bsp", "ssp", "asp", "hogwild"] = "bsp"
    """bsp: one update per step, as on one machine. ssp: at most `staleness` steps apart. asp, hogwild: no waiting."""
    servers: Count | None = None
    """Parameter servers, started in addition to --workers; each holds an equal part of the weights. none: 1."""
    staleness: Annotated[int, AtLeast(0)] | None = None
    """Steps that the fastest worker may be ahead of the slowest with ssp; none: 3. With 0, ssp is bsp."""
    damping: bool = False
    """Divide the learning rate of each update by 1 + its staleness, the updates that its gradient does not know of."""
    compensation: NonNegative = 0.0
    """Delay compensation λ: correct a stale gradient g to g + λ·g⊙g⊙(θ now − θ of the gradient); 0: none."""
    backup: Annotated[int, AtLeast(0)] = 0
    """Backup workers of bsp: a step ends without the slowest `backup` workers, whose gradients are dropped."""
    on_lost: Literal["stop", "continue"] = "stop"
    """When a worker is killed: stop, or continue without it (asp, ssp); the others take its share of the data."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        mode = self.mode
        if mode != "ssp" and self.staleness is not None:
            what = "waits for all workers in every step" if mode == "bsp" else "does not bound staleness"
            raise ConfigError(
                f"--strategy.staleness {self.staleness} has no effect with --strategy.mode {mode}, which {what}",
                "Use --strategy.mode ssp, or remove --strategy.staleness.",
            )
        if mode == "hogwild" and self.servers is not None:
            raise ConfigError(
                f"--strategy.servers {self.servers} has no effect with --strategy.mode hogwild: its workers update "
                "one copy of the weights in shared memory",
                "Remove --strategy.servers, or use --strategy.mode asp.",
            )
        for flag, given in (
            ("damping true", self.damping),
            (f"compensation {self.compensation:g}", self.compensation),
        ):
            if given and (self.gathers or mode == "hogwild"):
                why = "knows no staleness" if mode == "hogwild" else "has no stale updates"
                raise ConfigError(
                    f"--strategy.{flag} has no effect with --strategy.mode {mode}, which {why}",
                    "Use --strategy.mode asp or ssp.",
                )
        if self.backup and mode != "bsp":
            raise ConfigError(
                f"--strategy.backup {self.backup} has no effect with --strategy.mode {mode}",
                "Use --strategy.mode bsp: in the other modes fast workers do not wait for every slow one.",
            )

        if self.on_lost == "continue":
            self._check_can_lose()

    def _check_can_lose(self) -> None:
        if self.gathers or self.mode == "hogwild":
            why = (
                "its workers update the weights themselves, and no server knows what a killed one has done"
                if self.mode == "hogwild"
                else "an update needs the gradients of every worker"
            )
            raise ConfigError(
                f"--strategy.on_lost continue does not support --strategy.mode {self.mode}: {why}",
                "Use --strategy.mode asp or ssp, or resume the run from its last checkpoint.",
            )
        if self.num_servers > 1:
            raise ConfigError(
                f"--strategy.on_lost continue needs one server, but --strategy.servers is {self.num_servers}: a worker "
                "killed during a push could reach some of them only",
                "Remove --strategy.servers.",
            )

    @property
    def takes_turns(self) -> bool:
        """Whether a server tells each worker which share to compute next, so that any worker can take any share."""
        return self.mode == "asp" or self.on_lost == "continue"

    @property
    def num_servers(self) -> int:
        """The processes that hold weights and do not train."""
        return 0 if self.mode == "hogwild" else self.servers or 1

    @property
    def bound(self) -> int | None:
        """How many steps the fastest worker may be ahead of the slowest; None: any number."""
        if self.mode == "ssp":
            return DEFAULT_STALENESS if self.staleness is None else self.staleness
        return 0 if self.mode == "bsp" else None

    @property
    def gathers(self) -> bool:
        """Whether an update has the gradients of a whole step: then the result is one machine's.

        With a bound of 0 no worker can read weights between two pushes of a step, so a server adds them up.
        """
        return self.bound == 0

    @property
    def repeats(self) -> bool:
        """Whether the same run gives the same bits: an update has the gradients of all workers of a step."""
        return self.gathers and not self.backup

    def check_workers(self, workers: int) -> None:
        """Refuse a number of workers, those that train, that does not fit."""
        if self.num_servers > workers:
            raise ConfigError(
                f"--strategy.servers {self.num_servers} is more than --workers {workers}: the servers would wait for "
                "the workers",
                f"Use --strategy.servers {workers}, or more workers.",
            )
        if self.backup >= workers and self.backup:
            raise ConfigError(
                f"--strategy.backup {self.backup} leaves no gradient to count: --workers is {workers}",
                f"Use --workers {self.backup + 1} or more, or fewer backup workers.",
            )
