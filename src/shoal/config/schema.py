"""All settings of a run: frozen dataclasses, checked on construction, with a sentence under every field.

Each choice (data, model, loss, optimizer, schedule, sync, exchange, partition) is a dataclass of its own in
`sections/`, selected by `name`; an option under the wrong choice is therefore an error. `config.read` builds them from
recipes and flags; `--help` prints the sentences.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from shoal.config.checks.invariant import check_invariant, check_power_of_two, with_readable_step
from shoal.config.checks.layouts import check_layouts
from shoal.config.checks.supported import check_strategy
from shoal.config.kinds import Checked, either
from shoal.config.mesh import check_product, layout_of, parse_mesh
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.data import (
    BuiltInDataConfig,
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
from shoal.config.sections.layout import PipelineConfig, TensorConfig
from shoal.config.sections.memory import MemoryConfig
from shoal.config.sections.model import (
    BuiltInModelConfig,
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
from shoal.config.sections.prune import (
    ChannelsConfig,
    MagnitudeConfig,
    MovementConfig,
    NoPruneConfig,
    PruneConfig,
    WeightPruneConfig,
)
from shoal.config.sections.sync import (
    OWN_SYNC,
    STRATEGIES,
    Capabilities,
    DdpConfig,
    DpConfig,
    LocalConfig,
    NaiveConfig,
    NoSyncConfig,
    OneCopyConfig,
    RpcConfig,
    ServerConfig,
    SyncConfig,
    ZeroConfig,
)
from shoal.config.sections.train import CheckpointConfig, OutputConfig, StopConfig, TrainConfig
from shoal.config.sections.values import Count, Custom
from shoal.errors import ConfigError

__all__ = [
    "SHORT_FLAGS",
    "STRATEGIES",
    "AdamConfig",
    "AdamWConfig",
    "AllReduceConfig",
    "BuiltInDataConfig",
    "BuiltInModelConfig",
    "ByConfig",
    "ChannelsConfig",
    "CheckpointConfig",
    "Cifar10Config",
    "CompressedConfig",
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
    "LocalConfig",
    "LossConfig",
    "MaeConfig",
    "MagnitudeConfig",
    "MemoryConfig",
    "MlpConfig",
    "MnistConfig",
    "ModelConfig",
    "MovementConfig",
    "MseConfig",
    "NaiveConfig",
    "NoPruneConfig",
    "NoSyncConfig",
    "OneCopyConfig",
    "OptimizerConfig",
    "OutputConfig",
    "PartitionConfig",
    "PipelineConfig",
    "PruneConfig",
    "RandomConfig",
    "Resnet18Config",
    "RobustConfig",
    "RpcConfig",
    "RunConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "ServerConfig",
    "SgdConfig",
    "SpeedConfig",
    "StagesConfig",
    "StepDecayConfig",
    "StopConfig",
    "StratifiedConfig",
    "SyncConfig",
    "SyntheticConfig",
    "TensorConfig",
    "TrainConfig",
    "TransformerConfig",
    "WeightPruneConfig",
    "ZeroConfig",
]


@dataclass(frozen=True, repr=False)
class RunConfig(Checked):
    """One run: these settings and the data determine every bit of the result."""

    seed: int = 0
    """Random seed: initial weights, order of the samples, dropout (different on each worker)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; auto: GPUs if there is one for each worker, else the CPU."""
    engine: Literal["torch", "tape", "static"] = "torch"
    """What computes gradients: torch's autograd, shoal's tape, or shoal's static graph, compiled at the first batch."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """bf16: autocast to bfloat16, weights in float32. tf32: GPU matrix products in TF32, relative error 1e-3."""
    threads: Count | None = None
    """CPU threads of each worker; none: torch's default."""
    mesh: str = ""
    """Axes along which workers divide the work: data=4, or data=2,pipeline=2. Sets --workers; default sync: ddp."""
    data: DataConfig = field(default_factory=DigitsConfig)
    model: ModelConfig = field(default_factory=LenetConfig)
    loss: LossConfig = field(default_factory=CrossEntropyConfig)
    optimizer: OptimizerConfig = field(default_factory=AdamConfig)
    schedule: ScheduleConfig = field(default_factory=ConstantConfig)
    sync: SyncConfig | None = None
    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    tensor: TensorConfig = field(default_factory=TensorConfig)
    exchange: ExchangeConfig = field(default_factory=AllReduceConfig)
    partition: PartitionConfig = field(default_factory=GlobalConfig)
    prune: PruneConfig = field(default_factory=NoPruneConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def __repr__(self) -> str:
        what = f"{self.model.name} on {self.data.name} with {self.optimizer.name}"
        return f"RunConfig({what}; {self.strategy}, workers: {self.launch.workers})"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fill_in_defaults()
        axes = self.axes
        check_product(axes, self.launch.workers)
        pair = layout_of(axes), self._sync.name
        if isinstance(self.sync, Custom) and pair[0] != "whole":
            raise ConfigError(
                f"strategy {self.sync.name} divides no model, but --mesh is {self.mesh}",
                "Use --workers, or --mesh data=N.",
            )
        if pair not in STRATEGIES.values() and not isinstance(self.sync, Custom):
            syncs = [sync for layout, sync in STRATEGIES.values() if layout == pair[0]]
            raise ConfigError(
                f"layout {pair[0]} does not support sync {pair[1]}",
                f"Use --sync {either(syncs)}.",
            )
        check_strategy(self)
        check_layouts(self)
        self._check_stop()
        if self.train.reduction == "invariant":
            check_invariant(self)
            check_power_of_two(axes.get("data", 1))
        if self.precision not in PRECISIONS[self.engine]:
            raise ConfigError(
                f"--engine {self.engine} cannot compute in {self.precision}",
                f"Use --engine torch, or --precision {PRECISIONS[self.engine][0]}.",
            )
        if self.optimizer.name == "gd" and self.train.batch_size != "all":
            raise ConfigError(
                f"optimizer gd uses the whole training set in every step, but --batch-size is {self.train.batch_size}",
                "Use --optimizer sgd, or remove --batch-size.",
            )

    def _fill_in_defaults(self) -> None:
        """Set the defaults that depend on other settings."""

        def fill(**values: object) -> None:
            for name, value in values.items():
                object.__setattr__(self, name, value)

        if self.train.batch_size is None:
            fill(train=replace(self.train, batch_size="all" if self.optimizer.name == "gd" else 64))
        if self.mesh:
            sizes = parse_mesh(self.mesh, self.launch.workers)
            has_sizes = self.mesh.count("=") == len(sizes)
            # An axis without a size waits for the number of workers: torchrun brings it later.
            if has_sizes or self.launch.workers > 1:
                fill(mesh=",".join(f"{axis}={size}" for axis, size in sizes.items()))
            if has_sizes and self.launch.workers == 1:
                fill(launch=replace(self.launch, workers=math.prod(sizes.values())))
        if self.sync is None:
            fill(sync=DdpConfig() if self.mesh else NoSyncConfig())
        if self.memory.parameters == "bf16" and self.precision == "float32":
            fill(precision="bf16")  # products of weights in bfloat16 are computed in it
        if self.train.reduction == "invariant":
            # Another device or number of threads rounds differently, and so does a fused optimizer step of a slice.
            fill(threads=self.threads or 1, device="cpu" if self.device == "auto" else self.device)
            fill(optimizer=with_readable_step(self.optimizer))

    def _check_stop(self) -> None:
        """Refuse early stopping without a validation set. Data of one's own may have one: `build` looks."""
        self.stop.check_metric(self.train.metrics)
        if self.stop.patience is not None and not getattr(self.data, "validation", True):
            raise ConfigError(
                f"--stop.patience {self.stop.patience} needs a validation set",
                "Hold one out: --validation 0.1.",
            )

    @property
    def axes(self) -> dict[str, int]:
        """The sizes of the mesh's axes; without a mesh, all workers divide the data."""
        return parse_mesh(self.mesh, self.launch.workers) if self.mesh else {"data": self.launch.workers}

    @property
    def num_servers(self) -> int:
        """Parameter servers, which are started in addition to the workers."""
        return self._sync.num_servers if isinstance(self._sync, ServerConfig) else 0

    @property
    def _sync(self) -> SyncConfig:
        return self.sync or NoSyncConfig()

    @property
    def can(self) -> Capabilities:
        """What the strategy can be combined with."""
        return OWN_SYNC if isinstance(self._sync, Custom) else self._sync.CAN

    @property
    def strategy(self) -> str:
        """The name of the strategy: the pair (layout, sync), or the user's own."""
        if isinstance(self._sync, Custom):
            return self._sync.name
        pair = layout_of(self.axes), self._sync.name
        return next(name for name, known in STRATEGIES.items() if known == pair)


PRECISIONS: dict[str, tuple[str, ...]] = {
    "torch": ("float32", "tf32", "bf16"),
    # bf16 is torch's autocast; tf32 is a setting of the whole process.
    "tape": ("float32", "tf32"),
    "static": ("float32", "tf32"),
}
"""The precisions that each engine can compute in."""

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
    "sync": "sync.name",
    "aggregate": "sync.aggregate",
    "combine": "sync.combine",
    "combine-stages": "sync.combine_stages",
    "check-init": "sync.check_init",
    "exchange": "exchange.name",
    "partition": "partition.name",
    "prune": "prune.name",
    "start": "train.start",
    "workers": "launch.workers",
    "launcher": "launch.launcher",
    "group": "launch.group",
    "bottleneck": "launch.bottleneck",
    "link": "launch.link",
    "fault": "launch.fault",
    "i-trust-this-network": "launch.i_trust_this_network",
    "balance": "train.balance",
    "epochs": "train.epochs",
    "steps": "train.steps",
    "batch-size": "train.batch_size",
    "micro-batch": "train.micro_batch",
    "reduction": "train.reduction",
    "clip-norm": "train.clip_norm",
    "metrics": "train.metrics",
    "checkpoint-every": "checkpoint.every",
    "runs-dir": "output.dir",
    "name": "output.name",
    "trace": "output.trace",
    "logger": "output.logger",
}
"""The short flags of the command line, each with the path it sets. Top-level fields are flags under their own name."""
