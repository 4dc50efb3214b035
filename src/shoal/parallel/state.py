"""A model and its optimizer as pieces under one set of names, and back; and the fingerprint of the weights."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from shoal.errors import CheckpointError
from shoal.parallel.strategy import Pieces


def pieces_of(model: nn.Module, params: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> Pieces:
    """`model.<name>` for every parameter and buffer, `optim.<name>.<key>` for every state of every parameter.

    `params` are the tensors that the optimizer updates, under the model's names (see `Engine`).
    """
    pieces = {f"model.{name}": tensor.detach() for name, tensor in model.state_dict().items()}
    for name, param in params.items():
        for key, value in optimizer.state.get(param, {}).items():
            if value is not None:
                # Optimizers of others may keep plain numbers; a checkpoint holds tensors only.
                pieces[f"optim.{name}.{key}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return pieces


def load_pieces(
    model: nn.Module,
    params: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    pieces: Mapping[str, Tensor],
) -> None:
    """Copy pieces into a model and its optimizer; a state of another model is refused before anything is changed."""
    weights = {
        name.removeprefix("model."): piece for name, piece in pieces.items() if name.startswith("model.")
    }
    load_weights(model, weights)
    names = {param: name for name, param in params.items()}
    state: dict[int, dict[str, Tensor]] = {}
    updated = [param for group in optimizer.param_groups for param in group["params"]]
    for index, param in enumerate(updated):
        prefix = f"optim.{names[param]}."
        found = {key.removeprefix(prefix): piece for key, piece in pieces.items() if key.startswith(prefix)}
        if found:
            state[index] = found
    # By the optimizer's own door: it knows on which device, and in which precision, it wants each of them.
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model; a CheckpointError shows the first name or shape that does not fit."""
    own = model.state_dict()
    for name in own:
        if name not in weights:
            raise CheckpointError(
                f"the weights are of another model: they lack '{name}' {tuple(own[name].shape)}"
            )
        if weights[name].shape != own[name].shape:
            raise CheckpointError(
                f"the weights are of another model: '{name}' is {tuple(weights[name].shape)} there and "
                f"{tuple(own[name].shape)} here"
            )
    for name in weights:
        if name not in own:
            raise CheckpointError(f"the weights are of another model: '{name}' has no place in this one")
    model.load_state_dict(dict(weights))


def weights_sha256(pieces: Mapping[str, Tensor]) -> str:
    """One fingerprint of all `model.` pieces: names, kinds, shapes and every bit."""
    digest = hashlib.sha256()
    for name in sorted(name for name in pieces if name.startswith("model.")):
        tensor = pieces[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
