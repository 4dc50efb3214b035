"""How long, in what portions, and what is kept."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from shoal.config.kinds import Checked
from shoal.config.sections.values import Count, PositiveFloat
from shoal.errors import ConfigError
from shoal.printable import printable


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
    balance: bool = False
    """Divide batches by the workers' measured speed; changes who computes a sample, never what is computed."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """A worker's gradient is not finite: stop and name it before it spreads, or leave the step out."""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        path = PurePath(self.name)
        if path.is_absolute() or ".." in path.parts or printable(self.name) != self.name or "\n" in self.name:
            raise ConfigError(
                f"the name of a run is the name of a folder inside {self.dir}, and {self.name!r} is not",
                "Choose another --name; --runs-dir is the folder of all runs.",
            )
