"""Settings of pruning: which weights or channels are removed, how many, and when."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.choices import Checked
from shoal.config.kinds import AtLeast, Matching, Text
from shoal.config.sections.values import Count, Fraction
from shoal.errors import ConfigError

Scope = Literal["global", "layer"]
Pattern = Annotated[str, Matching(r"|[1-9]\d{0,2}:[1-9]\d{0,2}", "N:M, such as 2:4", "N:M")]


@dataclass(frozen=True)
class NoPruneConfig(Checked):
    """No pruning: every weight is trained."""

    name: Literal["none"] = "none"


@dataclass(frozen=True)
class WeightPruneConfig(Checked):
    """What magnitude and movement pruning have in common: single weights become zero, and stay zero."""

    sparsity: Fraction = 0.5
    """Fraction of the weights that are zero in the end; biases and norms are not pruned."""
    scope: Scope = "global"
    """Rank the weights of all layers together, or prune the same fraction of every layer."""
    layers: Text = "*"
    """Layers to prune, a pattern of names: fc*, or stage?.*.conv1."""
    pattern: Pattern = ""
    """N:M keeps N of every M consecutive inputs of an output (2:4 for sparse tensor cores), and sets the sparsity."""
    begin: Fraction = 0.0
    """The fraction of the training after which pruning begins."""
    end: Fraction = 0.5
    """The fraction of the training after which the masks are fixed; the sparsity rises to it on a cubic curve."""
    every: Count = 10
    """Steps between two increases of the sparsity."""
    rewind: Annotated[int, AtLeast(0)] | None = None
    """Lottery ticket: choose the masks from the weights of --start, then go back to its weights at this step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.end < self.begin:
            raise ConfigError(
                f"prune.end ({self.end:g}) is before prune.begin ({self.begin:g})",
                "Pruning begins at --prune.begin and is complete at --prune.end, fractions of the training.",
            )
        if self.rewind is not None and self.end > 0:
            raise ConfigError(
                f"prune.rewind {self.rewind} needs masks that are chosen before the first step, but prune.end is "
                f"{self.end:g}",
                "Use --prune.end 0.",
            )
        if self.pattern:
            kept, of = self.kept_of
            if kept > of:
                raise ConfigError(f"prune.pattern {self.pattern} keeps {kept} of {of} weights", "Use N ≤ M.")
            object.__setattr__(self, "sparsity", 1 - kept / of)

    @property
    def kept_of(self) -> tuple[int, int]:
        """N and M of the pattern."""
        kept, _, of = self.pattern.partition(":")
        return int(kept), int(of)


@dataclass(frozen=True)
class MagnitudeConfig(WeightPruneConfig):
    """The weights with the smallest absolute values become zero."""

    name: Literal["magnitude"] = "magnitude"


@dataclass(frozen=True)
class MovementConfig(WeightPruneConfig):
    """The weights that training moved towards zero become zero: the smallest Σ −θ·∂L/∂θ over the steps so far."""

    name: Literal["movement"] = "movement"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.end == 0.0:
            raise ConfigError(
                "movement pruning ranks weights by how training moves them, so it cannot be complete at step 0",
                "Use --prune.end 0.5, or --prune magnitude.",
            )


@dataclass(frozen=True)
class ChannelsConfig(Checked):
    """Channels, neurons and attention heads are removed before the first step: the network is a smaller one."""

    name: Literal["channels"] = "channels"
    sparsity: Fraction = 0.5
    """Fraction of the channels to remove."""
    scope: Scope = "layer"
    """Remove the same fraction of every layer's channels, or rank those of all layers together."""
    layers: Text = "*"
    """Layers whose outputs are removed, a pattern of names: fc*, or stage?.*.conv1."""


PruneConfig = NoPruneConfig | MagnitudeConfig | MovementConfig | ChannelsConfig
