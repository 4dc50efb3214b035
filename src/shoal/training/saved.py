"""Saved weights: of a run folder, or of a safetensors file."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from shoal.config.read import Tree, from_tree, merge, parse_toml, read_recipe
from shoal.config.schema import RunConfig
from shoal.config.write import check_seal
from shoal.errors import CheckpointError, ConfigError
from shoal.events.folder import RunFolder
from shoal.files import read_text
from shoal.prune.channels.widths import ModelDescription, Widths, resize
from shoal.prune.masks import KEPT
from shoal.strategies.exchange.exchange import pieces_under
from shoal.strategies.pieces.state import load_weights
from shoal.training import checkpoint
from shoal.training.weights import read_masks, read_model


class Saved(NamedTuple):
    """Weights, the file they are from, and the settings of their run, if known."""

    weights: Mapping[str, Tensor]
    source: Path
    settings: Tree
    widths: Widths
    """The layers of a network that has shrunk; of any other, none."""
    masks: Mapping[str, Tensor]
    """By parameter, True where a weight is kept; none if single weights were not pruned."""
    is_checked: bool = True
    """Whether the weights were compared with a checksum; a file outside of its run folder has none."""

    def load_into(self, model: nn.Module) -> None:
        """Put the weights into a model, which gets their widths; a CheckpointError if they are of another model."""
        resize(model, self.widths)
        load_weights(model, self.weights)


def exists(path: Path) -> bool:
    """Whether there is a file or folder, or a run with checkpoints that may have one of this name."""
    return path.exists() or _run_of_checkpoint(path) is not None


def _run_of_checkpoint(path: Path) -> RunFolder | None:
    """The run that RUN/checkpoints/NAME belongs to."""
    folder = RunFolder(path.parent.parent)
    return folder if path.parent == folder.checkpoints and folder.config.exists() else None


def open_run(path: Path, checkpoint: str = "", trust_code: bool = False) -> Saved:
    """The weights of a run or a file that a user names; with `checkpoint`, of this checkpoint of a run."""
    if not exists(path):
        raise ConfigError(f"{path} does not exist", "Give a run folder or a weights file (.safetensors).")
    if not checkpoint:
        return open_saved(path, trust_code)
    run = RunFolder(path)
    if not run.config.exists():
        raise ConfigError(
            f"--checkpoint {checkpoint} is for a run folder, and {path} is not one", "Give runs/NAME."
        )
    return open_saved(run.checkpoints / checkpoint, trust_code)


def open_saved(path: Path, trust_code: bool = False) -> Saved:
    """The weights of a run folder (of its newest checkpoint, if it did not finish) or of a safetensors file.

    RUN/checkpoints/best and RUN/checkpoints/last are the weights of a checkpoint, and so is that of a step.
    """
    if path.is_file():
        model = read_model(path)
        check_seal(model.settings or "", path)
        tree = parse_toml(model.settings, path, trust_code) if model.settings else {}
        run = RunFolder(path.parent)
        masks = read_masks(run) if path == run.model else {}
        return Saved(model.weights, path, tree, _widths(model.description, path), masks, model.is_checked)
    if (run := _run_of_checkpoint(path)) is not None:
        settings = read_recipe(str(run.config), trust_code)
        found = checkpoint.named(run.checkpoints, path.name)
        return Saved(weights_of(found), found.path, settings, widths_of(run), masks_of(found))
    folder = RunFolder(path)
    if not folder.config.exists():
        raise ConfigError(f"{path} is neither a run folder nor a safetensors file")
    settings, widths = read_recipe(str(folder.config), trust_code), widths_of(folder)
    # Beside the result of a run that was resumed and stopped are the weights of an earlier attempt.
    if folder.model.exists() and (folder.finished_result() or not folder.result.exists()):
        model = read_model(folder.model)
        masks = read_masks(folder)
        return Saved(model.weights, folder.model, settings, widths, masks, model.is_checked)
    if not any(folder.checkpoints.glob("step-*")):
        raise ConfigError(
            f"{path} has no weights: the run did not finish, and has no checkpoint",
            "Train it again, or give another run.",
        )
    newest = checkpoint.latest(folder.checkpoints)
    if newest.fallback:
        warnings.warn(newest.fallback, stacklevel=2)
    return Saved(weights_of(newest), newest.path, settings, widths, masks_of(newest))


def weights_of(saved: checkpoint.Checkpoint) -> dict[str, Tensor]:
    """The model's weights in a checkpoint."""
    return pieces_under("model.", saved.pieces())


def masks_of(saved: checkpoint.Checkpoint) -> dict[str, Tensor]:
    """The masks of pruned weights in a checkpoint."""
    return pieces_under(KEPT, saved.pieces())


def widths_of(folder: RunFolder) -> Widths:
    """The widths of the network of a run folder, if it has shrunk."""
    if not folder.description.exists():
        return {}
    try:
        return _widths(read_text(folder.description), folder.description)
    except OSError as error:
        raise CheckpointError(f"cannot read {folder.description}: {error.strerror}") from None


def _widths(text: str | None, source: Path) -> Widths:
    return ModelDescription.from_json(text, source).widths if text else {}


def config_for(saved: Saved, changes: Tree) -> RunConfig:
    """The settings of the weights' run, with the user's changes."""
    if not saved.settings and "model" not in changes:
        raise ConfigError(f"{saved.source} does not record its model", "Pass it, for example --model lenet.")
    # When to stop has no effect on saved weights, and may not fit other data.
    settings = {key: value for key, value in saved.settings.items() if key != "stop"}
    return from_tree(merge(settings, changes))
