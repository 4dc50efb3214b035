"""The network that a run starts with (weights of an earlier run, channels removed), and masks that change in it."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from shoal.config.schema import RunConfig
from shoal.config.sections.prune import ChannelsConfig, WeightPruneConfig
from shoal.errors import CheckpointError, ConfigError
from shoal.events.folder import RunFolder
from shoal.prune.channels.choose import choose_channels
from shoal.prune.channels.shrink import shrink
from shoal.prune.channels.widths import Widths, resize
from shoal.prune.masks import CubicSchedule, WeightMasks
from shoal.training import checkpoint
from shoal.training.hooks.hook import Hook
from shoal.training.progress import Progress
from shoal.training.saved import exists, open_saved, weights_of, widths_of


def prepare(
    model: nn.Module, config: RunConfig, sample: Tensor, resumed: RunFolder | None = None
) -> tuple[Widths, Callable[[], Mapping[str, Tensor]] | None]:
    """Change a model that was built from the seed into the model of the first step, in place.

    Phase 1, weights: from `--start`. Phase 2, `--prune channels`: remove channels. A resumed run only takes its
    widths; its weights are in its checkpoint.

    Returns the widths of a network that has shrunk and, with `--prune.rewind`, the weights to go back to once the masks
    are chosen.
    """
    rewind = config.prune.rewind if isinstance(config.prune, WeightPruneConfig) else None
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()} if rewind == 0 else {}
    rewound = None if rewind is None else partial(_weights_at, rewind, initial, config.train.start)
    if resumed is not None:
        widths = widths_of(resumed)
        resize(model, widths)
        return widths, rewound
    widths = load_start(model, config.train.start) if config.train.start else Widths()
    if rewind == 0 and widths:
        raise ConfigError(
            f"cannot rewind {config.train.start} to its initial weights: its channels were removed after these",
            "Rewind to a step that it has a checkpoint of.",
        )
    if rewound is not None:
        rewound()  # what is missing is reported here, before the training
    if isinstance(config.prune, ChannelsConfig):
        for name, sizes in shrink(model, choose_channels(model, config.prune), sample).items():
            widths.setdefault(name, {}).update(sizes)
    return widths, rewound


def _weights_at(step: int, initial: Mapping[str, Tensor], start: str) -> Mapping[str, Tensor]:
    """The weights of a run at a step: its initial ones, which the seed determines, or a checkpoint's."""
    if step == 0:
        return initial
    folder = RunFolder(Path(start)).checkpoints
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
    if not exists(path):
        raise ConfigError(f"--start {start} does not exist", "Give a run folder or a safetensors file.")
    saved = open_saved(path)
    try:
        saved.load_into(model)
    except CheckpointError as error:
        raise ConfigError(
            f"--start {start} does not fit the model: {error.message}", "Use the model of that run."
        ) from None
    return {name: dict(sizes) for name, sizes in saved.widths.items()}


@final
class Pruning(Hook):
    """Changes the masks before the steps that the schedule names, and records each change.

    The weights are the same on all workers and the choice is a pure function of them, so the masks are the same, too;
    their fingerprint is in every worker's events.
    """

    def __init__(
        self,
        masks: WeightMasks,
        schedule: CubicSchedule,
        record: Callable[[dict[str, Any]], None],
        rewind: Callable[[], None] | None = None,
    ) -> None:
        """`rewind` gives the weights earlier values, once the masks are chosen."""
        self._masks, self._schedule, self._record, self._rewind = masks, schedule, record, rewind

    def before_step(self, progress: Progress, num_samples: int) -> None:
        """Prune, if it is time."""
        masks, step = self._masks, progress.step
        if not self._schedule.is_due(step):
            return
        masks.prune(self._schedule.part(step))
        if self._rewind is not None:
            self._rewind()
            masks.after_update()
        self._record(
            {"event": "pruned", "step": step, "sparsity": round(masks.sparsity, 6), "kept": masks.num_kept}
            | {"masks_sha256": masks.sha256()}
        )
