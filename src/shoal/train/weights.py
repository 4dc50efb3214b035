"""The trained weights as one file that any torch program can read, and that says what it is."""

import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from shoal.config.write import to_toml
from shoal.errors import CheckpointError
from shoal.train.build import Built


def save_model(path: Path, built: Built) -> None:
    """Weights and buffers under the plain module's names; the settings of the run travel as metadata."""
    state = {
        name: tensor.detach().cpu().clone().contiguous() for name, tensor in built.model.state_dict().items()
    }
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(state, beside, metadata={"shoal": to_toml(built.config)})
        beside.replace(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {path}: {error}") from None
    finally:
        beside.unlink(missing_ok=True)


def read_model(path: Path) -> tuple[dict[str, torch.Tensor], str | None]:
    """The weights of a safetensors file, and the settings of the run that made it, if it was one of ours."""
    try:
        with safe_open(path, framework="pt") as file:  # pyright: ignore[reportUnknownVariableType]
            return {name: file.get_tensor(name) for name in file.keys()}, (file.metadata() or {}).get("shoal")  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read weights from {path}: {error}") from None
