"""The trained network as files: weights in one safetensors file, masks, and a smaller network as a program."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from shoal.errors import CheckpointError, ConfigError
from shoal.events.fingerprint import DTYPES as NAMES
from shoal.events.fingerprint import check_weights
from shoal.events.folder import RunFolder, write_whole
from shoal.files import complete_file, open_file
from shoal.prune.channels.source import source_of
from shoal.prune.channels.widths import ModelDescription
from shoal.prune.masks import WeightMasks, masks_sha256
from shoal.strategies.pieces.whole_tensors import Fingerprint, WholeTensors

DTYPES: dict[torch.dtype, str] = {getattr(torch, name): code for name, code in NAMES.items()}
"""The names of dtypes in the safetensors format."""


def check_savable(model: nn.Module, name: str) -> None:
    """Refuse a model with state that the safetensors format cannot hold, before anything is trained."""
    state: Mapping[str, object] = model.state_dict()
    for key, value in state.items():
        if isinstance(value, Tensor) and value.dtype in DTYPES:
            continue
        dtype = str(value.dtype).removeprefix("torch.") if isinstance(value, Tensor) else ""
        what = f"in {dtype}" if dtype else f"of type {type(value).__name__}"
        raise ConfigError(
            f"model {name} has '{key}' {what}, which checkpoints in the safetensors format cannot hold",
            "If it need not be saved, register the buffer with persistent=False.",
        )


def export_model(
    path: Path, wholes: WholeTensors, is_rank_0: bool, metadata: Mapping[str, str]
) -> Fingerprint:
    """Write weights and buffers under the module's names; return the fingerprint, on rank 0.

    A collective. Rank 0 holds one tensor at a time, so the model may be larger than its memory.
    """
    fingerprint = Fingerprint()
    if not is_rank_0:
        for _ in wholes:
            pass
        return fingerprint
    try:
        with complete_file(path) as file:
            kinds = {name: (parts[0].dtype, parts[0].place.shape) for name, parts in wholes.parts.items()}
            plain = {name: name.removeprefix("model.") for name in kinds}
            offsets = write_header(file, {plain[name]: kind for name, kind in kinds.items()}, metadata)
            for name, tensor in wholes:
                fingerprint.add(name, tensor)
                file.seek(offsets[plain[name]])
                write_tensor(file, tensor)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error}") from None
    return fingerprint


def write_tensor(file: BinaryIO, tensor: Tensor) -> None:
    """Write the bytes of a tensor on the host, without a copy of them."""
    file.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)


def write_header(
    file: BinaryIO, kinds: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str]
) -> dict[str, int]:
    """Write the beginning of a safetensors file: the length of the header, then names, dtypes, shapes, offsets as JSON.

    Returns the offset of each tensor. Dtypes with the largest elements come first, so that every tensor is aligned.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    starts: dict[str, int] = {}
    end = 0
    for name, (dtype, shape) in sorted(kinds.items(), key=lambda item: (-item[1][0].itemsize, item[0])):
        starts[name] = end
        end += torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": DTYPES[dtype], "shape": shape, "data_offsets": [starts[name], end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    return {name: 8 + len(text) + start for name, start in starts.items()}


class SavedModel(NamedTuple):
    """The content of a safetensors file."""

    weights: dict[str, Tensor]
    settings: str | None
    """The settings of the run, if shoal wrote it."""
    description: str | None
    """The description of a network that has shrunk (`model.json`), if it is of one."""
    is_checked: bool
    """Whether the weights were compared with the result of their run."""


def read_model(path: Path) -> SavedModel:
    """Read a safetensors file. Weights of a finished run are compared with its result first."""
    is_checked = check_weights(path)
    try:
        open_file(path).close()  # safetensors would wait for the writer of a pipe
        with safe_open(path, framework="pt") as file:  # pyright: ignore[reportUnknownVariableType]
            weights: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about: dict[str, str] = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read weights from {path}: {error}") from None
    return SavedModel(weights, about.get("shoal"), about.get("model"), is_checked)


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
    try:
        with complete_file(folder.masks) as file:
            file.write(save({name: kept.cpu().contiguous() for name, kept in masks.kept.items()}))
    except OSError as error:
        raise CheckpointError(f"cannot write {folder.masks}: {error}") from None
