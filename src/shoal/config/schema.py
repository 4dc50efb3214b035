"""All settings of a run: frozen dataclasses, checked on construction, with a sentence under every field.

One table says which of them may differ between a run and its resumption, compared runs, or workers.

Each choice (data, model, loss, optimizer, schedule, sync, exchange, partition) is a dataclass of its own in
`sections/`, selected by `name`; an option under the wrong choice is therefore an error. `config.read` builds them from
recipes and flags; `--help` prints the sentences.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, Literal

from shoal.config.choices import Checked
from shoal.config.combinations import check_combinations
from shoal.config.custom import require_consent
from shoal.config.feature import settings_of
from shoal.config.mesh import check_power_of_two, check_product, layout_of, parse_mesh
from shoal.config.sections.data import DataConfig, DigitsConfig, GlobalConfig, PartitionConfig
from shoal.config.sections.exchange import (
    AllReduceConfig,
    ExchangeConfig,
    RobustConfig,
    StagesConfig,
    compressions,
    stages_of,
)
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.memory import MemoryConfig
from shoal.config.sections.model import CrossEntropyConfig, LenetConfig, LossConfig, ModelConfig
from shoal.config.sections.optimizer import AdamConfig, ConstantConfig, OptimizerConfig, ScheduleConfig
from shoal.config.sections.prune import NoPruneConfig, PruneConfig
from shoal.config.sections.sync import STRATEGIES, SyncConfig
from shoal.config.sections.train import CheckpointConfig, OutputConfig, StopConfig, TrainConfig
from shoal.config.sections.values import Count, Custom, UnequalDevices, is_own
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.settings import NoSyncConfig
from shoal.strategies.tensor.settings import TensorConfig
from shoal.strategies.zero.settings import ZeroConfig


@dataclass(frozen=True, repr=False)
class RunConfig(Checked):
    """One run: these settings and the data determine every bit of the result."""

    seed: int = 0
    """Random seed: initial weights, order of the samples, dropout (different on each worker)."""
    device: Literal["auto", "cpu", "cuda"] | UnequalDevices = "auto"
    """Device; auto: GPUs if there is one for each worker, else the CPU. cuda,cpu: one for each rank."""
    engine: Literal["torch", "tape", "static"] = "torch"
    """What computes gradients: torch's autograd, shoal's tape, or shoal's static graph, compiled at the first batch."""
    precision: Literal["float32", "tf32", "bf16", "fp16"] = "float32"
    """Number format of matrix products; bf16, fp16: autocast, weights in float32. tf32: on a GPU, error 1e-3."""
    compile: bool = False
    """Compile the model with torch.compile: a slow first step, then often faster ones; equal within rounding."""
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
        check_combinations(settings_of(self, axes))
        self.stop.check_metric(self.train.metrics)
        if self.train.reduction == "invariant":
            check_power_of_two(axes.get("data", 1))
        if axes.get("pipeline", 1) > 1 and isinstance(self.train.batch_size, int):
            share = math.ceil(self.train.batch_size / axes.get("data", 1))
            self.pipeline.check_fits(axes["pipeline"], share, self.train.micro_batch)

    @property
    def has_unequal_devices(self) -> bool:
        """Whether some workers compute on a GPU and others on the CPU."""
        return "," in self.device

    def device_of(self, rank: int) -> str:
        """The device that a worker is to have: auto, cpu or cuda."""
        return self.device.split(",")[rank] if self.has_unequal_devices else self.device

    def check_device(self, device: str) -> None:
        """Refuse the device that `auto` has found, cpu or cuda, if its workers cannot be threads there."""
        settings = {**settings_of(self, self.axes), "device": device}
        check_combinations(settings, owners=["--launcher threads on a GPU"])

    def check_found(self, *features: str) -> None:
        """Refuse settings that do not support what only the data and functions of the user's own have shown."""
        check_combinations(settings_of(self, self.axes) | dict.fromkeys(features, True), owners=features)

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
            fill(sync=DdpConfig() if self.mesh or self.launch.workers > 1 else NoSyncConfig())
        if self.memory.parameters == "bf16" and self.precision == "float32":
            fill(precision="bf16")  # products of weights in bfloat16 are computed in it
        if self.train.reduction == "invariant":
            # Another device or number of threads rounds differently, and so does a fused optimizer step of a slice.
            fill(threads=self.threads or 1, device="cpu" if self.device == "auto" else self.device)
            if not isinstance(self.optimizer, Custom):
                fill(optimizer=replace(self.optimizer, fast=False))

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
    def strategy(self) -> str:
        """The name of the strategy: the pair (layout, sync), or the user's own."""
        if isinstance(self._sync, Custom):
            return self._sync.name
        pair = layout_of(self.axes), self._sync.name
        return next(name for name, known in STRATEGIES.items() if known == pair)


def named_code(config: RunConfig) -> list[tuple[str, Custom]]:
    """Every function of the user's own that a run uses, with what it is used for."""
    stages = config.exchange.stages() if isinstance(config.exchange, StagesConfig) else []
    chosen: list[tuple[str, Any]] = [(field.name, getattr(config, field.name)) for field in fields(config)]
    chosen += [("exchange", exchange) for _, exchange in stages]
    if isinstance(config.sync, ZeroConfig) and config.sync.unit_of is not None:
        chosen.append(("strategy.unit_of", Custom(name=config.sync.unit_of)))
    if is_own(config.pipeline.schedule):
        chosen.append(("pipeline.schedule", Custom(name=config.pipeline.schedule)))
    rules = (each.rule for each in stages_of(config.exchange) if isinstance(each, RobustConfig))
    chosen += [("exchange.rule", Custom(name=rule)) for rule in rules if is_own(rule)]
    codecs = (exchange.codec for exchange in compressions(config.exchange))
    chosen += [("exchange.codec", Custom(name=codec)) for codec in codecs if is_own(codec)]
    chosen += [("logger", Custom(name=name)) for name in config.output.logger if ":" in name]
    chosen += [("metrics", Custom(name=name)) for name in config.train.metrics if ":" in name]
    return [(kind, choice) for kind, choice in chosen if isinstance(choice, Custom)]


def check_consent(config: RunConfig) -> None:
    """Refuse a run that uses a function which only a file names."""
    for kind, custom in named_code(config):
        require_consent(kind, custom.name)


Where = Literal["resumed", "compared", "workers"]
"""A resumed run and the run before it; runs of the same task in a comparison; two workers of one run."""

_RESUMED: tuple[Where, ...] = ("resumed",)
_COMPARED: tuple[Where, ...] = ("compared",)
_WORKERS: tuple[Where, ...] = ("workers",)
_BOTH = _RESUMED + _COMPARED
_EVERYWHERE = _BOTH + _WORKERS

MAY_DIFFER: dict[str, Collection[Where]] = {
    # Where a run computes, and where it reads and writes.
    **dict.fromkeys(("device", "threads", "data.dir", "data.path", "data.loaders"), _EVERYWHERE),
    "compile": _BOTH,
    **dict.fromkeys(("output.trace", "output.logger"), _EVERYWHERE),
    **dict.fromkeys(("output.dir", "output.name"), _COMPARED + _WORKERS),
    "checkpoint.*": _BOTH,
    # How workers divide the work. The group itself compares their number.
    **dict.fromkeys(
        ("launch.workers", "launch.launcher", "launch.nodes", "launch.group", "launch.timeout"), _WORKERS
    ),
    **dict.fromkeys(("launch.*", "mesh", "pipeline.*", "tensor.*", "sync.*", "exchange.*"), _BOTH),
    "strategy.*": _RESUMED,
    **dict.fromkeys(("train.balance", "train.micro_batch"), _BOTH),
    # How long a run is, and what it needs: a checkpoint holds the state of one machine.
    **dict.fromkeys(
        ("train.epochs", "train.steps", "train.on_nonfinite", "train.metrics", "stop.patience", "memory.*"),
        _RESUMED,
    ),
    # How the same task may be computed from the start.
    **dict.fromkeys(("engine", "partition.*", "train.reduction", "train.test", "optimizer.fast"), _COMPARED),
}
"""By path; all other settings decide *what* is computed."""

DECIDES_BITS = ("train.micro_batch", "device", "threads")
"""With `--reduction invariant` the bits depend on these, so a resumed run and the workers of a run have them alike."""


def may_differ(path: str, where: Where) -> bool:
    """Whether a setting may differ there.

    >>> may_differ("launch.link", "compared"), may_differ("launch.link", "workers")
    (True, False)
    """
    return any(fnmatchcase(path, each) and where in places for each, places in MAY_DIFFER.items())


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
    "nodes": "launch.nodes",
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

_HOMES = (
    *("compression", "data", "exchange", "launch", "memory", "model", "optimizer", "prune"),
    *("sync", "train", "values"),
)


def __getattr__(name: str) -> Any:
    """A class of `sections/`: programs may import it from here, too."""
    for home in _HOMES if name[0].isupper() else ():
        module = import_module(f"shoal.config.sections.{home}")
        if name in vars(module):
            return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
