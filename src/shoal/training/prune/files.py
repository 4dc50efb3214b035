"""What a pruned run writes beside its weights: masks, widths, the network as a program."""

import warnings

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from shoal.errors import CheckpointError, ConfigError
from shoal.events.folder import RunFolder, write_whole
from shoal.files import open_new, temporary_beside
from shoal.prune.channels.source import source_of
from shoal.prune.channels.widths import ModelDescription
from shoal.prune.masks import WeightMasks, masks_sha256


def write_network(
    folder: RunFolder, description: ModelDescription, model: nn.Module, sample: Tensor, title: str
) -> None:
    """Write `model.json`, and `model.py` if every layer of the network can be written as a program."""
    write_whole(folder.description, description.to_json())
    try:
        program = source_of(model, title, sample)
    except ConfigError as error:
        warnings.warn(f"{folder.program.name} is not written: {error.message}", stacklevel=2)
    else:
        write_whole(folder.program, program)


def read_masks(folder: RunFolder) -> dict[str, Tensor]:
    """The masks of a pruned run, by parameter: True where a weight is kept. None of a run that is not pruned."""
    path, expected = folder.masks, folder.finished_result().get("masks_sha256")
    if not path.exists():
        return {}
    try:
        masks = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
    if expected not in (None, actual := masks_sha256(masks)):
        raise CheckpointError(f"{path} is damaged: its sha256 is {actual}, but the result has {expected}")
    return masks


def write_masks(folder: RunFolder, masks: WeightMasks) -> None:
    """Write `masks.safetensors`: for each pruned parameter, True where a weight is kept."""
    beside = temporary_beside(folder.masks)
    try:
        with open_new(beside) as file:
            file.write(save({name: kept.cpu().contiguous() for name, kept in masks.kept.items()}))
        beside.replace(folder.masks)
    except OSError as error:
        raise CheckpointError(f"cannot write {folder.masks}: {error}") from None
    finally:
        beside.unlink(missing_ok=True)
