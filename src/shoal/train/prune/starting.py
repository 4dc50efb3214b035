"""The network that a run starts with: weights of an earlier run, and channels removed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from shoal.config.schema import ChannelsConfig, RunConfig, WeightPruneConfig
from shoal.errors import CheckpointError, ConfigError
from shoal.events.folder import RunFolder
from shoal.parallel.state import load_weights
from shoal.prune.channels.choose import choose_channels
from shoal.prune.channels.shrink import shrink
from shoal.prune.channels.widths import Widths, resize
from shoal.train import checkpoint
from shoal.train.saved import open_saved, weights_of, widths_of


@dataclass(frozen=True)
class StartingPoint:
    """What was done to the model before the first step."""

    widths: Widths = field(default_factory=Widths)
    """Of a network that has shrunk; empty otherwise."""
    rewound: Mapping[str, Tensor] | None = None
    """The weights to go back to once the masks are chosen, with `--prune.rewind`."""


def prepare(
    model: nn.Module, config: RunConfig, sample: Tensor, resumed: RunFolder | None = None
) -> StartingPoint:
    """Change a model that was built from the seed into the one that the run starts with, in place.

    Phase 1, weights: those of `--start`. Phase 2, `--prune channels`: remove channels. A resumed run only takes its
    widths; its weights are in its checkpoint.
    """
    if resumed is not None:
        widths = widths_of(resumed)
        resize(model, widths)
        return StartingPoint(widths)
    widths, rewound = Widths(), None
    if isinstance(config.prune, WeightPruneConfig) and config.prune.rewind is not None:
        rewound = _weights_at(config.prune.rewind, model, Path(config.train.start))
    if config.train.start:
        widths = load_start(model, config.train.start)
    if isinstance(config.prune, ChannelsConfig):
        for name, sizes in shrink(model, choose_channels(model, config.prune), sample).items():
            widths.setdefault(name, {}).update(sizes)
    return StartingPoint(widths, rewound)


def _weights_at(step: int, model: nn.Module, start: Path) -> Mapping[str, Tensor]:
    """The weights of a run at a step: its initial ones, which the seed determines, or those of a checkpoint."""
    if step == 0:
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folder = RunFolder(start).checkpoints
    path = folder / f"step-{step:06d}"
    if not path.exists():
        steps = sorted(int(found.name[5:]) for found in folder.glob("step-*[0-9]"))
        known = ", ".join(map(str, [0, *steps]))
        raise ConfigError(
            f"{start} has no checkpoint of step {step} to rewind to",
            f"It has: {known}. --checkpoint.every and --checkpoint.keep decide which ones a run keeps.",
        )
    return weights_of(checkpoint.verify(path))


def load_start(model: nn.Module, start: str) -> Widths:
    """Load the weights of a run folder or a file; returns the widths of their network, if it has shrunk."""
    path = Path(start)
    if not path.exists():
        raise ConfigError(f"--start {start} does not exist", "Give a run folder or a safetensors file.")
    saved = open_saved(path)
    try:
        resize(model, saved.widths)
        load_weights(model, saved.weights)
    except CheckpointError as error:
        raise ConfigError(
            f"--start {start} does not fit the model: {error.message}", "Use the model of that run."
        ) from None
    return {name: dict(sizes) for name, sizes in saved.widths.items()}
