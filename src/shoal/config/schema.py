"""All settings of a run: frozen dataclasses, checked on construction, with a sentence under every field.

Each choice (data, model, loss, optimizer, schedule, sync, exchange, partition) is a dataclass of its own in
`sections/`, selected by `name`; an option under the wrong choice is therefore an error. `config.read` builds them from
recipes and flags; `--help` prints the sentences.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from shoal.config.checks.invariant import check_invariant, check_power_of_two, with_readable_step
from shoal.config.checks.memory import check_memory_settings
from shoal.config.checks.prune import check_prune
from shoal.config.checks.supported import check_step
from shoal.config.kinds import Checked
from shoal.config.mesh import LAYOUT_AXES, check_product, layout_of, parse_mesh
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
    compressions,
)
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.layout import LayoutCapabilities, PipelineConfig, TensorConfig
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
                f"Use --sync {', '.join(syncs[:-1])} or {syncs[-1]}.",
            )
        self._check_capabilities()
        self._check_layouts(axes)
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

    def _check_capabilities(self) -> None:
        """Refuse settings that the strategy does not support, as its sync declares."""
        strategy, can, workers = self.strategy, self.can, self.launch.workers
        if can.most_workers is not None and workers > can.most_workers:
            raise ConfigError(
                f"strategy {strategy} runs on {can.most_workers} worker, but --workers is {workers}",
                "Use --strategy ddp, or --workers 1.",
            )
        if self.engine not in can.engines:
            raise ConfigError(
                f"strategy {strategy} does not support --engine {self.engine}",
                f"Use --engine {can.engines[0]}, or --strategy ddp.",
            )
        if not can.exchanges and self.exchange.name != "all_reduce":
            raise ConfigError(
                f"--exchange {self.exchange.name} has no effect with strategy {strategy}",
                "Use --strategy naive or ddp, or remove --exchange.",
            )
        for compressed in compressions(self.exchange):
            compressed.check_run(
                strategy,
                can.refused_codecs,
                getattr(self.sync, "aggregate", "gradients"),
                getattr(self.optimizer, "momentum", 0.0),
                self.axes.get("tensor", 1),
            )
        if isinstance(self.sync, ServerConfig):
            self.sync.check_run(self.exchange.name, self.train.balance, self.engine)
        check_step(self)
        check_prune(self)
        check_memory_settings(self, layout_of(self.axes))
        uneven = next((each for each in self.launch.bottleneck if each.share is not None), None)
        shares = (
            "--balance changes the workers' shares of a batch"
            if self.train.balance
            else f"bottleneck '{uneven}' sets the workers' shares of a batch"
            if uneven
            else ""
        )
        if not can.divides_batch and (shares or self.partition.name != "global"):
            what = shares or f"--partition {self.partition.name} gives each worker data of its own"
            raise ConfigError(
                f"{what}, but strategy {strategy} does not divide batches among workers",
                "Use --strategy naive or ddp.",
            )
        if shares and self.partition.name != "global":
            raise ConfigError(
                f"{shares}, but with --partition {self.partition.name} each worker has data of its own",
                "Use --partition global.",
            )

    def _check_stop(self) -> None:
        """Refuse early stopping without a validation set. Data of one's own may have one: `build` looks."""
        self.stop.check_metric(self.train.metrics)
        if self.stop.patience is not None and not getattr(self.data, "validation", True):
            raise ConfigError(
                f"--stop.patience {self.stop.patience} needs a validation set",
                "Hold one out: --validation 0.1.",
            )

    def _check_layouts(self, axes: Mapping[str, int]) -> None:
        """Refuse settings that a layout does not support, as it declares."""
        for axis in (axis for axis, size in axes.items() if size > 1 and axis in LAYOUT_AXES):
            can: LayoutCapabilities = getattr(self, LAYOUT_AXES[axis]).CAN
            launch = self.launch
            refused = {
                f"--engine {self.engine}": self.engine not in can.engines,
                "--bottleneck": bool(launch.bottleneck) and not can.conditions,
                "--fault": bool(launch.fault) and not can.conditions,
                "--balance": self.train.balance and not can.balance,
                "--reduction invariant": self.train.reduction == "invariant" and not can.invariant,
                f"--prune {self.prune.name}": self.prune.name != "none",
                "--sync.sync_batchnorm": getattr(self.sync, "sync_batchnorm", False)
                and not can.sync_batchnorm,
            }
            for flag, is_refused in refused.items():
                if is_refused:
                    raise ConfigError(
                        f"layout {LAYOUT_AXES[axis]} does not support {flag}",
                        f"Use --strategy ddp, or leave {flag.partition(' ')[0]} out.",
                    )
            stage: int = getattr(self.sync, "stage", 1)
            if stage not in can.zero_stages:
                raise ConfigError(
                    f"layout {LAYOUT_AXES[axis]} does not support --sync.stage {stage}: {can.on_zero_stages}",
                    "Use --sync.stage 1, or --sync onecopy: one copy of the weights for all workers of a machine.",
                )
        if axes.get("pipeline", 1) > 1:
            self.pipeline.check_updates(axes.get("data", 1), self.train.clip_norm, self.train.on_nonfinite)
        if axes.get("pipeline", 1) > 1 and isinstance(self.train.batch_size, int):
            share = math.ceil(self.train.batch_size / axes.get("data", 1))
            self.pipeline.check_fits(axes["pipeline"], share, self.train.micro_batch)
        for axis, flag, given in (
            ("tensor", "--tensor.plan", self.tensor.plan),
            ("pipeline", "--pipeline.cut", self.pipeline.cut),
        ):
            if given and axis not in axes:
                raise ConfigError(
                    f"{flag} has no effect without a {axis} axis",
                    f"Use --strategy {axis}, or --mesh {axis}=2.",
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
