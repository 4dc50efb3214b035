"""The runs of the part by name.

::

    straggler-even-bsp    no straggler: what bsp does when all workers are equally fast
    straggler-always-*    one worker is three times slower in every step, one run for each way
    straggler-passing-*   every worker is sometimes slow: a random delay in each step

Workers sleep while they are slow. The others sleep for a part of each step, too: so three workers have room on two
cores, as if each had a machine of its own.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from shoal.config.conditions import Bottleneck
from shoal.config.schema import RunConfig
from shoal.config.sections.data import DataConfig, DigitsConfig
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.model import LenetConfig, ModelConfig
from shoal.config.sections.optimizer import SgdConfig
from shoal.config.sections.sync import SyncConfig
from shoal.config.sections.train import TrainConfig
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.server.settings import ServerConfig
from shoal_labs.runs import ONLY_AT_THE_END

BATCH_SIZE = 63
"""Equal shares for three workers."""
FEWEST = 3
"""Workers: with one backup worker, the gradients of at least two still count."""
SPEED_OF_ALL, SLOWDOWN = 3, 3
"""A worker takes this many times its computation; the straggler this many times as long again."""
DELAY_MS = 30
"""In each step, a delay is drawn from 0 to this."""
STALENESS = 3
BACKUP = 1
LR, MOMENTUM = 0.02, 0.9
TARGET = 0.85
"""The accuracy on the validation set whose time is measured."""
EVEN = "even"
CONDITIONS = ("always", "passing")
WAYS = ("bsp", "ssp", "asp", "backup", "balanced")
BASE = (EVEN, "bsp")
"""The run without a straggler."""
LEARNING = (("always", "bsp"), ("always", "asp"))
"""The ways whose times to an accuracy are compared, in turns."""
VALIDATION = 0.2


@dataclass(frozen=True)
class StragglerSize:
    """How much is trained."""

    epochs: int
    repeats: int = 1
    """Runs of each of the two ways whose times to an accuracy are compared."""


FULL, FULL_SAMPLES = StragglerSize(epochs=8, repeats=6), 5000
QUICK, QUICK_SAMPLES = StragglerSize(epochs=7, repeats=5), 2400


def sync_of(way: str) -> SyncConfig:
    """How a way waits."""
    ways: dict[str, SyncConfig] = {
        "bsp": ServerConfig(mode="bsp"),
        "ssp": ServerConfig(mode="ssp", staleness=STALENESS),
        "asp": ServerConfig(mode="asp"),
        "backup": ServerConfig(mode="bsp", backup=BACKUP),
        "balanced": DdpConfig(),
    }
    return ways[way]


@dataclass(frozen=True)
class StragglerPlan:
    """The experiment."""

    workers: int
    size: StragglerSize
    data: DataConfig
    """A part of it is held out."""
    seed: int = 0
    model: ModelConfig = field(default_factory=LenetConfig)
    timed_by: Literal["processes", "threads"] = "processes"

    @property
    def slow(self) -> int:
        """The rank of the straggler."""
        return self.workers - 1

    def named(self) -> dict[tuple[str, str], str]:
        """The runs by condition and way."""
        pairs = [BASE, *((condition, way) for condition in CONDITIONS for way in WAYS)]
        return {(condition, way): f"straggler-{condition}-{way}" for condition, way in pairs}

    def again(self, condition: str, way: str) -> list[str]:
        """The further runs of a way, in which it takes turns with its rival."""
        count = self.size.repeats if (condition, way) in LEARNING else 1
        return [f"{self.named()[condition, way]}-round{number}" for number in range(1, count)]

    def runs(self) -> dict[str, RunConfig]:
        """Every run by name, in the order in which they are trained."""
        runs = {name: self._run(*pair) for pair, name in self.named().items()}
        turns = zip(*([(name, pair) for name in self.again(*pair)] for pair in LEARNING), strict=True)
        return runs | {name: self._run(*pair) for turn in turns for name, pair in turn}

    def bottlenecks(self, condition: str) -> tuple[Bottleneck, ...]:
        """What makes workers slow."""
        if condition == "passing":
            texts = [f"rank={rank},delay=0-{DELAY_MS}ms" for rank in range(self.workers)]
            return tuple(map(Bottleneck.from_text, texts))
        speeds = [SPEED_OF_ALL] * self.workers
        if condition == "always":
            speeds[self.slow] *= SLOWDOWN
        texts = [f"rank={rank},slowdown={speed}" for rank, speed in enumerate(speeds)]
        return tuple(map(Bottleneck.from_text, texts))

    def _run(self, condition: str, way: str) -> RunConfig:
        config = RunConfig(
            seed=self.seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=SgdConfig(lr=LR, momentum=MOMENTUM),
            sync=sync_of(way),
            launch=LaunchConfig(
                workers=self.workers, launcher=self.timed_by, bottleneck=self.bottlenecks(condition)
            ),
            train=TrainConfig(
                epochs=self.size.epochs, batch_size=BATCH_SIZE, balance=way == "balanced", test=False
            ),
            checkpoint=ONLY_AT_THE_END,
        )
        return replace(config, output=replace(config.output, trace=True))


def plan_for(workers: int, quick: bool, first_seed: int) -> StragglerPlan:
    """The plan of a run."""
    samples = QUICK_SAMPLES if quick else FULL_SAMPLES
    data = DigitsConfig(samples=samples, validation=VALIDATION)
    return StragglerPlan(max(workers, FEWEST), QUICK if quick else FULL, data, first_seed)
