"""What a run is made of: frozen data, checked the moment it is made, a sentence under every field.

Each choice (data, model, loss, optimizer, schedule, strategy) is a small dataclass of its own, selected by `name`; an
option under the wrong choice is therefore an error by construction. `config.read` turns recipes and flags into these,
and `--help` prints these sentences.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from shoal.config.kinds import AtLeast, Below, Checked, ImportPath, MoreThan
from shoal.errors import ConfigError

Count = Annotated[int, AtLeast(1)]
NonNegative = Annotated[float, AtLeast(0.0)]
PositiveFloat = Annotated[float, MoreThan(0.0)]
Fraction = Annotated[float, AtLeast(0.0), Below(1.0)]


@dataclass(frozen=True)
class Custom(Checked):
    """A choice of the user's own: `package.module:function`, called with the options given beside the name."""

    name: ImportPath
    options: tuple[tuple[str, bool | int | float | str], ...] = ()


# ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class DigitsConfig(Checked):
    """10,000 + 2,000 handwritten digits out of MNIST, shipped inside the package."""

    name: Literal["digits"] = "digits"
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on only this many samples, the same part of every label; none: on all."""
    validation: Fraction = 0.0
    """Part of the training set held out, stratified by label; choices are made on it, never on the test set."""


@dataclass(frozen=True)
class MnistConfig(Checked):
    """60,000 + 10,000 handwritten digits, 28×28 grey."""

    name: Literal["mnist"] = "mnist"
    dir: str = ""
    """Where to look for the files first; then in $SHOAL_DATA, then in the user's cache."""
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on only this many samples, the same part of every label; none: on all."""
    validation: Fraction = 0.0
    """Part of the training set held out, stratified by label; choices are made on it, never on the test set."""


@dataclass(frozen=True)
class FashionMnistConfig(Checked):
    """60,000 + 10,000 pictures of clothes, 28×28 grey."""

    name: Literal["fashion-mnist"] = "fashion-mnist"
    dir: str = ""
    """Where to look for the files first; then in $SHOAL_DATA, then in the user's cache."""
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on only this many samples, the same part of every label; none: on all."""
    validation: Fraction = 0.0
    """Part of the training set held out, stratified by label; choices are made on it, never on the test set."""


@dataclass(frozen=True)
class Cifar10Config(Checked):
    """50,000 + 10,000 photographs of ten kinds of things, 32×32 colour."""

    name: Literal["cifar10"] = "cifar10"
    dir: str = ""
    """Where to look for the files first; then in $SHOAL_DATA, then in the user's cache."""
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on only this many samples, the same part of every label; none: on all."""
    validation: Fraction = 0.0
    """Part of the training set held out, stratified by label; choices are made on it, never on the test set."""
    augment: bool = True
    """Shift by up to four pixels and mirror, anew for every batch of the training set."""


@dataclass(frozen=True)
class SyntheticConfig(Checked):
    """Data made from a seed, of any size: nothing to fetch, and the answer is known to be learnable."""

    name: Literal["synthetic"] = "synthetic"
    task: Literal["classification", "regression", "text"] = "classification"
    """What is to be learnt: a label, a number, or the next byte."""
    samples: Count = 4096
    """Training samples; a fifth as many are made for the test set."""
    shape: tuple[Count, ...] = (1, 28, 28)
    """Shape of one input; for text, one number: the length of a sequence in bytes."""
    classes: Annotated[int, AtLeast(2)] = 10
    """How many labels there are (classification)."""
    seed: int = 0
    """Seed of the data alone, so that the run's seed can change and the data stay."""
    validation: Fraction = 0.0
    """Part of the training set held out; choices are made on it, never on the test set."""


DataConfig = DigitsConfig | MnistConfig | FashionMnistConfig | Cifar10Config | SyntheticConfig


# ── model and loss ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LinearConfig(Checked):
    """One linear layer: softmax regression, or least squares."""

    name: Literal["linear"] = "linear"


@dataclass(frozen=True)
class MlpConfig(Checked):
    """Fully connected layers with ReLU between."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[Count, ...] = (128, 64)
    """Widths of the hidden layers."""


@dataclass(frozen=True)
class LenetConfig(Checked):
    """The course's network: two convolutions with pooling, two fully connected layers."""

    name: Literal["lenet"] = "lenet"


@dataclass(frozen=True)
class Resnet18Config(Checked):
    """ResNet-18 with the stem for small pictures: 3×3, no pooling."""

    name: Literal["resnet18"] = "resnet18"
    width: Count = 64
    """Channels of the first stage; 64 is the published network."""
    norm: Literal["batch", "group"] = "batch"
    """Batch statistics differ between workers; group statistics do not."""


@dataclass(frozen=True)
class TransformerConfig(Checked):
    """A small decoder over bytes: each position sees the ones before it."""

    name: Literal["transformer"] = "transformer"
    layers: Count = 2
    """Blocks of attention and feed-forward."""
    width: Count = 64
    """Width of the residual stream."""
    heads: Count = 4
    """Attention heads; they divide the width."""


ModelConfig = LinearConfig | MlpConfig | LenetConfig | Resnet18Config | TransformerConfig | Custom


@dataclass(frozen=True)
class CrossEntropyConfig(Checked):
    """Minus the logarithm of the probability given to the right label."""

    name: Literal["cross_entropy"] = "cross_entropy"
    smoothing: Fraction = 0.0
    """Probability taken from the right label and spread evenly over all."""


@dataclass(frozen=True)
class MseConfig(Checked):
    """Squared distance to the target; labels become one-hot targets."""

    name: Literal["mse"] = "mse"


@dataclass(frozen=True)
class MaeConfig(Checked):
    """Absolute distance to the target; labels become one-hot targets."""

    name: Literal["mae"] = "mae"


LossConfig = CrossEntropyConfig | MseConfig | MaeConfig | Custom


# ── optimizer and schedule ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class GdConfig(Checked):
    """Gradient descent: the rule of plain SGD on the gradient of the whole training set."""

    name: Literal["gd"] = "gd"
    lr: PositiveFloat = 0.5
    """Learning rate η."""
    fast: bool = True
    """Update with torch's fused kernels; false runs the readable step, which defines the result."""


@dataclass(frozen=True)
class SgdConfig(Checked):
    """Stochastic gradient descent, with momentum if asked."""

    name: Literal["sgd"] = "sgd"
    lr: PositiveFloat = 0.1
    """Learning rate η."""
    momentum: Fraction = 0.0
    """μ: how much of the previous step is kept."""
    nesterov: bool = False
    """Look ahead along the momentum (needs momentum)."""
    weight_decay: NonNegative = 0.0
    """λ: added to the gradient as λ·θ."""
    fast: bool = True
    """Update with torch's fused kernels; false runs the readable step, which defines the result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise ConfigError(
                "optimizer.nesterov looks ahead along the momentum, and optimizer.momentum is 0",
                "Set --optimizer.momentum 0.9, or leave nesterov out.",
            )


@dataclass(frozen=True)
class AdamConfig(Checked):
    """Steps scaled by running estimates of the gradient's first and second moment."""

    name: Literal["adam"] = "adam"
    lr: PositiveFloat = 1e-3
    """Learning rate η."""
    beta1: Fraction = 0.9
    """How much of the first moment is kept."""
    beta2: Fraction = 0.999
    """How much of the second moment is kept."""
    eps: PositiveFloat = 1e-8
    """ε: keeps the division finite."""
    weight_decay: NonNegative = 0.0
    """λ: added to the gradient as λ·θ."""
    fast: bool = True
    """Update with torch's fused kernels; false runs the readable step, which defines the result."""


@dataclass(frozen=True)
class AdamWConfig(Checked):
    """Adam with the weight decay taken from the weights and not through the gradient."""

    name: Literal["adamw"] = "adamw"
    lr: PositiveFloat = 1e-3
    """Learning rate η."""
    beta1: Fraction = 0.9
    """How much of the first moment is kept."""
    beta2: Fraction = 0.999
    """How much of the second moment is kept."""
    eps: PositiveFloat = 1e-8
    """ε: keeps the division finite."""
    weight_decay: NonNegative = 0.01
    """λ: the weights shrink by η·λ in every step."""
    fast: bool = True
    """Update with torch's fused kernels; false runs the readable step, which defines the result."""


OptimizerConfig = GdConfig | SgdConfig | AdamConfig | AdamWConfig | Custom


@dataclass(frozen=True)
class ConstantConfig(Checked):
    """The learning rate stays as it is."""

    name: Literal["constant"] = "constant"
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps in which the rate rises linearly from 0."""


@dataclass(frozen=True)
class StepDecayConfig(Checked):
    """The learning rate is multiplied by a factor at regular intervals."""

    name: Literal["step"] = "step"
    every: Count = 1000
    """Steps between two decays."""
    factor: PositiveFloat = 0.1
    """What the rate is multiplied by."""
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps in which the rate rises linearly from 0."""


@dataclass(frozen=True)
class CosineConfig(Checked):
    """The learning rate falls along half a cosine to a floor at the last step."""

    name: Literal["cosine"] = "cosine"
    floor: Fraction = 0.0
    """What is left at the end, as a part of the full rate."""
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps in which the rate rises linearly from 0."""


ScheduleConfig = ConstantConfig | StepDecayConfig | CosineConfig


# ── strategy, training, output ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class SingleConfig(Checked):
    """One worker, the whole model, the whole batch: what every other strategy must equal."""

    name: Literal["single"] = "single"


@dataclass(frozen=True)
class NaiveConfig(Checked):
    """Replicas that sum each parameter's gradient when backward is over: the first thing one would write."""

    name: Literal["naive"] = "naive"


StrategyConfig = SingleConfig | NaiveConfig


@dataclass(frozen=True)
class LaunchConfig(Checked):
    """How many workers there are, what they are, and through what they talk."""

    workers: Count = 1
    """Workers on this machine. Started by hand or by torchrun, the world's size is taken instead."""
    launcher: Literal["processes", "threads"] = "processes"
    """What a worker is; as threads, a breakpoint works in every rank."""
    group: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    """Through what processes talk; auto: shared memory on one machine, gloo elsewhere."""


@dataclass(frozen=True)
class TrainConfig(Checked):
    """How long, and in what portions."""

    epochs: Count = 3
    """Times the training set is gone through."""
    steps: Count | None = None
    """Stop after this many steps, also in mid-epoch; none: when the epochs are done."""
    batch_size: Count | Literal["all"] | None = None
    """Samples of one step, over all workers together; none: 64, or all for gd. `all` is the whole training set."""
    micro_batch: Count = 2048
    """Most samples in one forward pass; a larger share is accumulated in parts, which does not change the sum."""
    clip_norm: PositiveFloat | None = None
    """Scale the gradient down to this norm when it is longer."""
    test: bool = True
    """Evaluate on the test set at the end; a search among settings leaves it unread."""


@dataclass(frozen=True)
class CheckpointConfig(Checked):
    """When to save, and how much to keep."""

    every: Count | None = None
    """Steps between two checkpoints; none: one at the end of every epoch."""
    keep: Count = 2
    """Checkpoints kept; older ones are deleted once a newer one is safe on disk."""


@dataclass(frozen=True)
class OutputConfig(Checked):
    """Where the run's folder goes."""

    dir: str = "runs"
    """Folder of all runs."""
    name: str = ""
    """Name of this run's folder; empty: made from data, model, optimizer and time."""
    trace: bool = False
    """Record the spans of every step, not only of every 20th."""


@dataclass(frozen=True)
class RunConfig(Checked):
    """One run, whole: this and the data decide every bit of the result."""

    seed: int = 0
    """Decides the initial weights and the order of the samples."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    engine: Literal["torch", "tape", "static"] = "torch"
    """What computes gradients: torch's autograd, our own tape, or our own graph, compiled at the first batch."""
    threads: Count | None = None
    """Threads of one worker's tensor operations; none: torch's choice."""
    data: DataConfig = field(default_factory=DigitsConfig)
    model: ModelConfig = field(default_factory=LenetConfig)
    loss: LossConfig = field(default_factory=CrossEntropyConfig)
    optimizer: OptimizerConfig = field(default_factory=AdamConfig)
    schedule: ScheduleConfig = field(default_factory=ConstantConfig)
    strategy: StrategyConfig = field(default_factory=SingleConfig)
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
                "Choose how they work together: --strategy naive",
            )
        if isinstance(self.optimizer, GdConfig) and batch_size != "all":
            raise ConfigError(
                f"gd with batch {batch_size} is SGD: gradient descent takes the whole training set in every step",
                "Use --optimizer sgd, or leave --batch-size out.",
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
    "workers": "launch.workers",
    "launcher": "launch.launcher",
    "group": "launch.group",
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
