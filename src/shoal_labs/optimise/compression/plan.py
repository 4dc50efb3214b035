"""The runs of the lab by name.

::

    rotate-*    one training for each link, in which codecs take turns: all are timed in the same state of the machine
    auto-*      one training for each link with `compressed:auto`, which chooses among the same codecs
    learn-*     longer, with several seeds and without a slow link: what does a codec cost in accuracy?
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shoal.config.schema import RunConfig
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.data import DataConfig, DigitsConfig
from shoal.config.sections.exchange import AllReduceConfig, ExchangeConfig
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.model import MlpConfig, ModelConfig
from shoal.config.sections.optimizer import AdamConfig, CosineConfig, SgdConfig
from shoal.config.sections.train import TrainConfig
from shoal.strategies.ddp.settings import DdpConfig
from shoal_labs.plans import at_least_two, seeds_from
from shoal_labs.rotation import Rotation
from shoal_labs.runs import NEVER, ONLY_AT_THE_END

BATCH_SIZE = 64
LINKS: dict[str, tuple[str, ...]] = {
    "loopback": (),
    "1gbit": ("all:1gbit",),
    "100mbit": ("all:100mbit",),
    "20mbit": ("all:20mbit",),
}
"""From fast to slow. On loopback messages move as fast as this machine copies them between processes."""
SLOWEST = "20mbit"
NONE = "none"
CODECS = (NONE, "fp16", "int8", "int4", "terngrad", "sign", "topk", "powersgd")
"""No compression, then from many bytes to few, one of each kind; all with their default settings."""
SPARSE_RATIO = 0.01
"""Of the runs that show what feedback does: so few elements that most wait for many steps."""
FEEDBACK: dict[str, ExchangeConfig] = {
    "sparse": CompressedConfig(codec="topk", ratio=SPARSE_RATIO),
    "sparse-forgetful": CompressedConfig(codec="topk", ratio=SPARSE_RATIO, feedback=False),
}


def exchange_of(codec: str) -> str:
    """What `--exchange` is given for a codec.

    >>> exchange_of("none"), exchange_of("topk")
    ('all_reduce', 'compressed:topk')
    """
    return "all_reduce" if codec == NONE else f"compressed:{codec}"


@dataclass(frozen=True)
class CompressionSize:
    """How much is trained."""

    turn: int
    rounds: int
    """Enough that one or two disturbed ones leave nothing undecided."""
    auto_steps: int
    learn_steps: int
    seeds: int
    most: int = 1
    """How often a rotation is made, if its rounds scatter too much to decide."""


FULL = CompressionSize(turn=5, rounds=19, auto_steps=20, learn_steps=400, seeds=10, most=2)
QUICK = CompressionSize(turn=3, rounds=15, auto_steps=10, learn_steps=150, seeds=6, most=2)


@dataclass(frozen=True)
class CompressionPlan:
    """The whole experiment."""

    workers: int
    size: CompressionSize
    first_seed: int = 0
    quick: bool = False
    data: DataConfig = field(default_factory=DigitsConfig)
    model: ModelConfig = field(default_factory=MlpConfig)
    timed_by: Literal["processes", "threads"] = "processes"
    """The launcher of runs whose times are used."""

    def __post_init__(self) -> None:
        at_least_two(self.workers)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of repeated runs; runs that are not repeated have the first."""
        return seeds_from(self.first_seed, self.size.seeds)

    @property
    def rotation(self) -> Rotation:
        """How the codecs take turns on every link."""
        return Rotation(CODECS, self.size.turn, self.size.rounds)

    def runs(self) -> dict[str, RunConfig]:
        """Every run by name, in the order in which they are trained."""
        runs: dict[str, RunConfig] = {}
        auto = CompressedConfig(codec="auto", candidates=CODECS)
        for link in LINKS:
            runs[f"rotate-{link}"] = self._timed(
                link, len(self.rotation.names), self.rotation.stages(exchange_of)
            )
            runs[f"auto-{link}"] = self._timed(link, self.size.auto_steps, auto)
        for name, exchange in self.learning().items():
            config = self._run(self.size.learn_steps, exchange)
            # The last steps are small, so that the noise of one step does not decide what is compared.
            config = replace(config, schedule=CosineConfig())
            if name in FEEDBACK:
                # Adam divides by the size of what arrives, and so hides what feedback does to it.
                config = replace(config, optimizer=SgdConfig())
            runs |= {f"learn-{name}-seed{seed}": replace(config, seed=seed) for seed in self.seeds}
        return runs

    def learning(self) -> dict[str, ExchangeConfig]:
        """The exchanges whose accuracy is measured."""
        codecs: dict[str, ExchangeConfig] = {
            codec: AllReduceConfig() if codec == NONE else CompressedConfig(codec=codec)
            for codec in CODECS  # pyright: ignore[reportArgumentType]
        }
        return {**codecs, **FEEDBACK}

    def _timed(self, link: str, steps: int, exchange: ExchangeConfig) -> RunConfig:
        # Links carry messages through shared memory, where their own time hardly adds to the wire's; loopback is gloo.
        group = "auto" if LINKS[link] else "gloo"
        config = self._run(steps, exchange, launcher=self.timed_by, group=group, link=LINKS[link])
        return replace(
            config,
            output=replace(config.output, trace=True),
            train=replace(config.train, test=False),
        )

    def _run(self, steps: int, exchange: ExchangeConfig, **launch: Any) -> RunConfig:
        """A run by threads unless `launch` says otherwise."""
        return RunConfig(
            seed=self.first_seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=AdamConfig(),
            sync=DdpConfig(),
            exchange=exchange,
            launch=replace(LaunchConfig(workers=self.workers, launcher="threads"), **launch),
            train=TrainConfig(epochs=NEVER, steps=steps, batch_size=BATCH_SIZE),
            checkpoint=ONLY_AT_THE_END,
        )


def plan_for(workers: int, quick: bool, first_seed: int) -> CompressionPlan:
    """The plan of a run."""
    return CompressionPlan(workers, QUICK if quick else FULL, first_seed, quick)
