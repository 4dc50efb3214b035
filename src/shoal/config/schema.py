"""What a run is made of: frozen data, checked the moment it is made, a sentence under every field.

Each choice (data, model, loss, optimizer, schedule, strategy, exchange, partition) is a small dataclass of its own,
selected by `name`; an option under the wrong choice is therefore an error by construction. `config.read` turns recipes
and flags into these, and `--help` prints these sentences.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from shoal.config.kinds import Checked
from shoal.config.sections.data import (
    Cifar10Config,
    DataConfig,
    DigitsConfig,
    FashionMnistConfig,
    MnistConfig,
    SyntheticConfig,
)
from shoal.config.sections.exchange import (
    AllReduceConfig,
    ByConfig,
    ExchangeConfig,
    RobustConfig,
    StagesConfig,
)
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.model import (
    CrossEntropyConfig,
    LenetConfig,
    LinearConfig,
    LossConfig,
    MaeConfig,
    MlpConfig,
    ModelConfig,
    MseConfig,
    Resnet18Config,
    TransformerConfig,
)
from shoal.config.sections.optimizer import (
    AdamConfig,
    AdamWConfig,
    ConstantConfig,
    CosineConfig,
    GdConfig,
    OptimizerConfig,
    ScheduleConfig,
    SgdConfig,
    StepDecayConfig,
)
from shoal.config.sections.partition import (
    ContiguousConfig,
    DirichletConfig,
    GlobalConfig,
    HashConfig,
    LabelConfig,
    PartitionConfig,
    RandomConfig,
    SamplingConfig,
    SpeedConfig,
    StratifiedConfig,
)
from shoal.config.sections.strategy import DdpConfig, DpConfig, NaiveConfig, SingleConfig, StrategyConfig
from shoal.config.sections.train import CheckpointConfig, OutputConfig, TrainConfig
from shoal.config.sections.values import Count, Custom
from shoal.errors import ConfigError

__all__ = [
    "SHORT_FLAGS",
    "AdamConfig",
    "AdamWConfig",
    "AllReduceConfig",
    "ByConfig",
    "CheckpointConfig",
    "Cifar10Config",
    "ConstantConfig",
    "ContiguousConfig",
    "CosineConfig",
    "CrossEntropyConfig",
    "Custom",
    "DataConfig",
    "DdpConfig",
    "DigitsConfig",
    "DirichletConfig",
    "DpConfig",
    "ExchangeConfig",
    "FashionMnistConfig",
    "GdConfig",
    "GlobalConfig",
    "HashConfig",
    "LabelConfig",
    "LaunchConfig",
    "LenetConfig",
    "LinearConfig",
    "LossConfig",
    "MaeConfig",
    "MlpConfig",
    "MnistConfig",
    "ModelConfig",
    "MseConfig",
    "NaiveConfig",
    "OptimizerConfig",
    "OutputConfig",
    "PartitionConfig",
    "RandomConfig",
    "Resnet18Config",
    "RobustConfig",
    "RunConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "SgdConfig",
    "SingleConfig",
    "SpeedConfig",
    "StagesConfig",
    "StepDecayConfig",
    "StrategyConfig",
    "StratifiedConfig",
    "SyntheticConfig",
    "TrainConfig",
    "TransformerConfig",
]


@dataclass(frozen=True)
class RunConfig(Checked):
    """One run, whole: this and the data decide every bit of the result."""

    seed: int = 0
    """Decides the initial weights and the order of the samples."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    engine: Literal["torch", "tape", "static"] = "torch"
    """What computes gradients: torch's autograd, our own tape, or our own graph, compiled at the first batch."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """bf16: forward and backward in bfloat16 where that is safe, weights in float32. tf32: GPU products, to 1e-3."""
    threads: Count | None = None
    """Threads of one worker's tensor operations; none: torch's choice."""
    data: DataConfig = field(default_factory=DigitsConfig)
    model: ModelConfig = field(default_factory=LenetConfig)
    loss: LossConfig = field(default_factory=CrossEntropyConfig)
    optimizer: OptimizerConfig = field(default_factory=AdamConfig)
    schedule: ScheduleConfig = field(default_factory=ConstantConfig)
    strategy: StrategyConfig = field(default_factory=SingleConfig)
    exchange: ExchangeConfig = field(default_factory=AllReduceConfig)
    partition: PartitionConfig = field(default_factory=GlobalConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        batch_size = self.train.batch_size
        if batch_size is None:
            # The default depends on the optimizer, so it can be filled in only here, where both are known.
            batch_size = "all" if isinstance(self.optimizer, GdConfig) else 64
            object.__setattr__(self, "train", replace(self.train, batch_size=batch_size))
        if isinstance(self.strategy, SingleConfig) and self.launch.workers > 1:
            raise ConfigError(
                f"strategy single is one worker, and --workers asks for {self.launch.workers}",
                "Choose how they work together, --strategy ddp, or take one: --workers 1",
            )
        if not isinstance(self.exchange, AllReduceConfig) and isinstance(
            self.strategy, SingleConfig | DpConfig
        ):
            raise ConfigError(
                f"--exchange {self.exchange.name} has nothing to do under strategy {self.strategy.name}",
                "An exchange is how replicas agree: use --strategy naive or ddp.",
            )
        if isinstance(self.strategy, DpConfig) and self.engine != "torch":
            raise ConfigError(
                f"strategy dp cuts torch's graph in two at the outputs, and --engine {self.engine} has its own",
                "Use --engine torch, or --strategy ddp.",
            )
        if not isinstance(self.partition, GlobalConfig) and isinstance(
            self.strategy, SingleConfig | DpConfig
        ):
            raise ConfigError(
                f"--partition {self.partition.name} gives every worker data of its own, and under strategy "
                f"{self.strategy.name} one has all of it",
                "Use --strategy naive or ddp.",
            )
        if self.precision == "bf16" and self.engine != "torch":
            raise ConfigError(
                f"--precision bf16 is torch's autocast, and --engine {self.engine} computes by itself",
                "Use --engine torch, or --precision float32.",
            )
        if isinstance(self.optimizer, GdConfig) and batch_size != "all":
            raise ConfigError(
                f"gd with batch {batch_size} is SGD: gradient descent takes the whole training set in every step",
                "Use --optimizer sgd, or leave --batch-size out.",
            )
        self._check_conditions()

    def _check_conditions(self) -> None:
        """Refuse conditions that the strategy or the partition has no place for."""
        strategy, partition = self.strategy.name, self.partition.name
        texts = zip(self.launch.bottleneck, self.launch.bottlenecks(), strict=True)
        uneven = next((text for text, each in texts if each.share is not None), None)
        if self.train.balance or uneven:
            what = "--balance changes" if self.train.balance else f"bottleneck '{uneven}' states"
            if isinstance(self.strategy, SingleConfig | DpConfig):
                raise ConfigError(
                    f"{what} the workers' shares of a batch, and strategy {strategy} does not divide it by shares",
                    "Use --strategy naive or ddp.",
                )
            if not isinstance(self.partition, GlobalConfig):
                raise ConfigError(
                    f"{what} the workers' shares of a batch, and under --partition {partition} each has its own data",
                    "Use --partition global.",
                )


SHORT_FLAGS: dict[str, str] = {
    "data": "data.name",
    "data-dir": "data.dir",
    "validation": "data.validation",
    "model": "model.name",
    "loss": "loss.name",
    "optimizer": "optimizer.name",
    "lr": "optimizer.lr",
    "momentum": "optimizer.momentum",
    "weight-decay": "optimizer.weight_decay",
    "schedule": "schedule.name",
    "strategy": "strategy.name",
    "aggregate": "strategy.aggregate",
    "combine": "strategy.combine",
    "check-init": "strategy.check_init",
    "exchange": "exchange.name",
    "partition": "partition.name",
    "workers": "launch.workers",
    "launcher": "launch.launcher",
    "group": "launch.group",
    "bottleneck": "launch.bottleneck",
    "link": "launch.link",
    "fault": "launch.fault",
    "balance": "train.balance",
    "epochs": "train.epochs",
    "steps": "train.steps",
    "batch-size": "train.batch_size",
    "micro-batch": "train.micro_batch",
    "clip-norm": "train.clip_norm",
    "checkpoint-every": "checkpoint.every",
    "runs-dir": "output.dir",
    "name": "output.name",
    "trace": "output.trace",
}
"""The short flags of the command line, each with the path it sets. Top-level fields are flags under their own name."""
