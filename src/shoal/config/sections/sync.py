"""Settings of the syncs (how replicas of a model agree), and the table of strategies."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from shoal.config.feature import DIVIDED_WEIGHTS, OWN_ENGINES, SHARES, Row, refused
from shoal.config.kinds import AtLeast, AtMost, Checked, ImportPath
from shoal.config.sections.server import ServerConfig
from shoal.config.sections.values import Count, Custom, Fraction, Mebibytes, PositiveFloat
from shoal.errors import ConfigError, unknown


@dataclass(frozen=True)
class NoSyncConfig(Checked):
    """One worker: nothing to synchronise."""

    REFUSES: ClassVar[Row] = {
        "--workers": "it trains on one worker",
        "--exchange": "one worker exchanges nothing",
        **SHARES,
    }

    name: Literal["none"] = "none"


Combine = Literal["exact", "sum", "mean", "weighted_mean"]
COMBINES: tuple[Combine, ...] = get_args(Combine)


def _combine_stage(text: str) -> tuple[float, Combine]:
    start, _, combine = (part.strip() for part in text.partition("="))
    try:
        fraction = float(start)
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction < 1:
        raise ConfigError(f"expected a stage START=COMBINE with 0 ≤ START < 1, got '{text}'")
    for known in COMBINES:
        if combine == known:
            return fraction, known
    raise ConfigError(unknown("combine", combine, COMBINES))


@dataclass(frozen=True)
class NaiveConfig(Checked):
    """Replicas; one all-reduce per parameter after backward. Simple and slow."""

    REFUSES: ClassVar[Row] = {}

    name: Literal["naive"] = "naive"
    aggregate: Literal["gradients", "parameters"] = "gradients"
    """Aggregate gradients before the update, or parameters (and moments) after it."""
    combine: Combine = "exact"
    """exact: divide losses by the global batch size and sum. The others combine each worker's mean gradient."""
    combine_stages: tuple[str, ...] = ()
    """A list of START=COMBINE: combine in that way from START on, a fraction of the training; 0=sum,0.5=mean."""
    check_init: bool = False
    """Fail if initial parameters differ between workers, instead of copying rank 0's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_stages()
        combines = [combine for _, combine in self.stages()]
        if self.aggregate == "parameters" and "sum" in combines:
            raise ConfigError(
                "--aggregate parameters --combine sum multiplies the parameters by the number of workers in each step",
                "Use --combine exact or mean, or --aggregate gradients.",
            )

    def stages(self) -> list[tuple[float, Combine]]:
        """The stages in order: the fraction of the training at which each begins, and its combine."""
        return [_combine_stage(text) for text in self.combine_stages] or [(0.0, self.combine)]

    def _check_stages(self) -> None:
        starts = [start for start, _ in self.stages()]
        if starts[0] != 0 or sorted(set(starts)) != starts:
            raise ConfigError(
                "the stages of --combine-stages must start at 0 and increase, got "
                + ", ".join(f"{start:g}" for start in starts),
                "Write for example --combine-stages 0=sum,0.5=mean",
            )
        if self.combine_stages and self.combine != "exact":
            raise ConfigError(
                f"--combine {self.combine} has no effect with --combine-stages", "Remove one of the two."
            )


@dataclass(frozen=True)
class DpConfig(Checked):
    """Rank 0 holds data, loss and optimizer, and scatters each batch; the others run forward and backward."""

    # It cuts torch's graph in two at the outputs; our own engines have graphs of their own.
    REFUSES: ClassVar[Row] = {"--exchange": "rank 0 collects the gradients", **SHARES, **OWN_ENGINES}

    name: Literal["dp"] = "dp"


@dataclass(frozen=True)
class RpcConfig(Checked):
    """Rank 0 drives; the other workers hold consecutive layers and answer remote procedure calls (torch RPC)."""

    REFUSES: ClassVar[Row] = {
        **refused("--device cuda", "--precision tf32", "--precision bf16", "--clip-norm"),
        **refused("--bottleneck", "--fault", "--link", why="conditions do not reach its workers"),
        "--exchange": "each weight has one owner, so there is nothing to exchange",
        "--launcher threads": "torch has one RPC agent in each process",
        "--micro-batch": "it does not accumulate gradients; --strategy.microbatches makes stages overlap",
        **SHARES,
        **OWN_ENGINES,
    }
    FEWEST_WORKERS: ClassVar = 2

    name: Literal["rpc"] = "rpc"
    microbatches: Count = 1
    """Parts of a batch that are under way at once: stages overlap. Gradients are then added in the order of arrival."""
    cut: str = ""
    """Layers that begin a stage, such as "fc1"; empty: stages of about equal numbers of parameters."""


@dataclass(frozen=True)
class DdpConfig(Checked):
    """Replicas; gradients are summed in buckets, during backward where the group allows it."""

    REFUSES: ClassVar[Row] = {}

    name: Literal["ddp"] = "ddp"
    bucket_mib: Mebibytes = 25.0
    """Bucket size in MiB: smaller buckets overlap more, larger ones have less overhead."""
    first_bucket_mib: Mebibytes = 1.0
    """Size of the first bucket in MiB: small, so that the first exchange starts early."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""
    sync_batchnorm: bool = False
    """Compute batch-norm statistics over all workers; without it, batch norm gives other results than one machine."""


@dataclass(frozen=True)
class OneCopyConfig(Checked):
    """One copy of the weights in memory that all workers of a machine map; each worker updates its slice."""

    REFUSES: ClassVar[Row] = DIVIDED_WEIGHTS

    name: Literal["onecopy"] = "onecopy"
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""


@dataclass(frozen=True)
class ZeroConfig(Checked):
    """Optimizer state, gradients and parameters are divided among the workers (ZeRO, stages 1 to 3)."""

    REFUSES: ClassVar[Row] = DIVIDED_WEIGHTS

    name: Literal["zero"] = "zero"
    stage: Annotated[int, AtLeast(1), AtMost(3)] = 1
    """What is divided: 1: optimizer state; 2: gradients, too; 3: parameters, too."""
    unit_mib: Mebibytes = 8.0
    """Parameters that are gathered and reduced together, in MiB: small units save memory, large ones overhead."""
    unit_of: ImportPath | None = None
    """`package.module:function`, called with a parameter's name: those with the same result are one unit."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""
    sync_batchnorm: bool = False
    """Compute batch-norm statistics over all workers; without it, batch norm gives other results than one machine."""
    offload: Literal["none", "memory", "file"] = "none"
    """Where optimizer state is kept: with the parameters, in the host's memory (for a GPU), or in a mapped file."""
    offload_dir: str = ""
    """Folder of the file of --strategy.offload file; empty: $TMPDIR, or /var/tmp."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.offload_dir and self.offload != "file":
            raise ConfigError(
                f"--strategy.offload_dir has no effect with --strategy.offload {self.offload}",
                "Use --strategy.offload file, or leave offload_dir out.",
            )


@dataclass(frozen=True)
class LocalConfig(Checked):
    """Replicas train alone for some steps, then average their weights (local SGD, DiLoCo, streaming DiLoCo)."""

    REFUSES: ClassVar[Row] = {
        "--exchange compressed:auto": "it compares codecs by the time of an exchange in every step",
        "--exchange compressed:dgc": "it replaces the optimizer's momentum, and here the optimizer steps between two "
        "exchanges",
    }

    name: Literal["local"] = "local"
    every: Count = 20
    """Steps between two averagings of a weight, k."""
    outer_lr: PositiveFloat = 1.0
    """Learning rate of the outer step, which moves the weights towards their average; 1: all the way."""
    outer_momentum: Fraction = 0.0
    """Nesterov momentum of the outer step; DiLoCo has 0.9, and 0.7 for outer_lr."""
    fragments: Count = 1
    """Average this many equal parts of the weights at different steps, so that no step sends all of them."""
    overlap: Annotated[int, AtLeast(0)] = 0
    """Steps that a worker goes on training while an average is on its way; 0: it waits."""
    moments: Literal["average", "keep"] | None = None
    """The optimizer's moments: average them with the weights, or keep each worker's; none: average, unless overlap."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap > self.every:
            raise ConfigError(
                f"--strategy.overlap {self.overlap} is more than --strategy.every {self.every}: an average would "
                "arrive after the next one has begun",
                f"Use --strategy.overlap {self.every} or less.",
            )
        if self.overlap and self.moments == "average":
            raise ConfigError(
                f"--strategy.moments average needs averages without delay, but --strategy.overlap is {self.overlap}",
                "Use --strategy.moments keep, or --strategy.overlap 0.",
            )

    @property
    def averages_moments(self) -> bool:
        """Whether the optimizer's moments are averaged with the weights."""
        return not self.overlap and self.moments != "keep"


SyncConfig = (
    NoSyncConfig
    | NaiveConfig
    | DpConfig
    | DdpConfig
    | OneCopyConfig
    | ZeroConfig
    | LocalConfig
    | ServerConfig
    | RpcConfig
    | Custom
)
OWN_SYNC: Row = {"--exchange": "it decides itself what workers exchange"}
"""What a sync of the user's own cannot be combined with."""

DIVIDED_LAYOUTS = ("pipeline", "tensor", "pipeline+tensor")
"""Layouts that divide the model: the mesh names their axes."""
STRATEGIES: dict[str, tuple[str, str]] = {
    "single": ("whole", "none"),
    "naive": ("whole", "naive"),
    "ddp": ("whole", "ddp"),
    "dp": ("whole", "dp"),
    "rpc": ("whole", "rpc"),
    "onecopy": ("whole", "onecopy"),
    "zero": ("whole", "zero"),
    "local": ("whole", "local"),
    "server": ("whole", "server"),
    **{layout: (layout, "ddp") for layout in DIVIDED_LAYOUTS},
    **{f"{layout}+{sync}": (layout, sync) for layout in DIVIDED_LAYOUTS for sync in ("onecopy", "zero")},
}
"""The strategies that exist, each a pair (layout, sync). `--strategy NAME` abbreviates the pair."""
