"""A model's and an optimizer's state as pieces, and back."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from shoal.errors import CheckpointError
from shoal.parallel.piece import Piece, Place

PlaceOf = Callable[[str], Place]
"""The place of this worker's part of a parameter in the whole, by the parameter's name."""


def optimizer_pieces(
    params: Mapping[str, Tensor], place_of: PlaceOf, optimizer: torch.optim.Optimizer
) -> list[Piece]:
    """`optim.<name>.<key>` for every state of every parameter."""
    pieces: list[Piece] = []
    for name, param in params.items():
        for key, value in optimizer.state.get(param, {}).items():
            if value is None:
                continue
            # Other optimizers may keep plain numbers; a checkpoint holds only tensors.
            tensor = value if isinstance(value, Tensor) else torch.tensor(value)
            place = place_of(name)
            if tensor.shape != param.shape:
                # A number for the whole parameter, the same for all parts: the first part's worker saves it.
                place = Place.whole(tensor, place.replica if place.is_first else 1 + place.replica)
            pieces.append(Piece(f"optim.{name}.{key}", tensor, place))
    return pieces


def load_optimizer(
    params: Mapping[str, Tensor],
    place_of: PlaceOf,
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, Tensor],
) -> None:
    """Load the parts of a saved optimizer state that belong to these parameters."""
    names = {param: name for name, param in params.items()}
    keys: dict[str, list[str]] = {name: [] for name in params}
    for saved_name in saved:
        if saved_name.startswith("optim."):
            # Names of parameters contain dots, names of their state do not.
            name, _, key = saved_name.removeprefix("optim.").rpartition(".")
            if name in keys:
                keys[name].append(key)
    state: dict[int, dict[str, Tensor]] = {}
    updated = [param for group in optimizer.param_groups for param in group["params"]]
    for index, param in enumerate(updated):
        place, found = place_of(names[param]), dict[str, Tensor]()
        for key in keys[names[param]]:
            whole = saved[f"optim.{names[param]}.{key}"]
            is_divided = tuple(whole.shape) == place.shape
            found[key] = place.part(whole, tuple(param.shape)) if is_divided else whole
        if found:
            state[index] = found
    # The optimizer's own method puts each tensor on the device and in the precision that it needs.
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], prefix: str = "") -> None:
    """Copy weights, `<prefix><name>`, into a model; a CheckpointError shows the first name or shape that differs."""
    own = model.state_dict()
    for name, tensor in own.items():
        if f"{prefix}{name}" not in weights:
            raise CheckpointError(
                f"the weights are of another model: they lack '{name}' {tuple(tensor.shape)}"
            )
    for name in weights:
        if name.startswith(prefix) and name.removeprefix(prefix) not in own:
            raise CheckpointError(
                f"the weights are of another model: '{name.removeprefix(prefix)}' is not in this model"
            )
    loaded: dict[str, Tensor] = {}
    for name, tensor in own.items():
        loaded[name] = weights[f"{prefix}{name}"]
        if loaded[name].shape != tensor.shape:
            raise CheckpointError(
                f"the weights are of another model: '{name}' is {tuple(loaded[name].shape)} there and "
                f"{tuple(tensor.shape)} here"
            )
    model.load_state_dict(loaded)
