"""A model's and an optimizer's state as pieces, and back."""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from shoal.errors import CheckpointError
from shoal.optim.compact.optimizer import Compact
from shoal.strategies.pieces.piece import Piece, Place

PlaceOf = Callable[[str], Place]
"""The place of this worker's part of a parameter in the whole, by the parameter's name."""
PlaceOfHeld = Callable[[str, Tensor], Place]
"""The place in the whole of a tensor that this worker holds, by its name in the whole model."""


def whole_place(name: str, tensor: Tensor, replica: int = 0) -> Place:
    """The place of a tensor of which this worker holds all."""
    del name
    return Place.whole(tensor, replica)


def model_pieces(state: Mapping[str, Tensor], place_of: PlaceOfHeld = whole_place) -> list[Piece]:
    """`model.<name>` for every parameter and buffer of a state."""
    return [Piece(f"model.{name}", tensor.detach(), place_of(name, tensor)) for name, tensor in state.items()]


def optimizer_pieces(
    params: Mapping[str, Tensor], place_of: PlaceOf, optimizer: torch.optim.Optimizer
) -> list[Piece]:
    """`optim.<name>.<key>` for every state of every parameter."""
    if isinstance(optimizer, Compact):
        return _decoded_pieces(params, place_of, optimizer)
    pieces: list[Piece] = []
    for name, param in params.items():
        for key, value in optimizer.state.get(param, {}).items():
            if value is None:
                continue
            # Other optimizers may keep plain numbers; a checkpoint holds only tensors.
            tensor = value if isinstance(value, Tensor) else torch.tensor(value)
            place = place_of(name)
            if tensor.shape != param.shape:
                place = _of_the_whole(tensor, place)
            pieces.append(Piece(f"optim.{name}.{key}", tensor, place))
    return pieces


def _of_the_whole(number: Tensor, place: Place) -> Place:
    """The place of a number for the whole parameter, the same for all parts: the first part's worker saves it."""
    return Place.whole(number, place.replica if place.is_first else 1 + place.replica)


def _decoded_pieces(params: Mapping[str, Tensor], place_of: PlaceOf, optimizer: Compact) -> list[Piece]:
    """The same for state in another form: each tensor is decoded when it is read."""
    pieces: list[Piece] = []
    for name, param in params.items():
        for key, decode in optimizer.floats_of(param).items():
            if key == "step":
                number = decode()
                pieces.append(Piece(f"optim.{name}.{key}", number, _of_the_whole(number, place_of(name))))
            else:
                outline = torch.empty(param.shape, device="meta")
                pieces.append(Piece(f"optim.{name}.{key}", outline, place_of(name), decode))
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
    if isinstance(optimizer, Compact):
        for name, param in params.items():
            optimizer.load_floats(
                param, {key: partial(_part, name, key, param, place_of, saved) for key in keys[name]}
            )
        return
    state: dict[int, dict[str, Tensor]] = {}
    updated = [param for group in optimizer.param_groups for param in group["params"]]
    for index, param in enumerate(updated):
        name = names[param]
        found = {key: _part(name, key, param, place_of, saved) for key in keys[name]}
        if found:
            state[index] = found
    # The optimizer's own method puts each tensor on the device and in the precision that it needs.
    own = type(optimizer)
    load, read = inspect.unwrap(own.load_state_dict), inspect.unwrap(own.state_dict)
    load(optimizer, {"state": state, "param_groups": read(optimizer)["param_groups"]})


def _part(name: str, key: str, param: Tensor, place_of: PlaceOf, saved: Mapping[str, Tensor]) -> Tensor:
    """A copy of the part of a saved state that belongs to a parameter here.

    Without one the optimizer would change what the program has saved, also for workers that are threads beside it.
    """
    whole, place = saved[f"optim.{name}.{key}"], place_of(name)
    is_divided = tuple(whole.shape) == place.shape
    return (place.read(whole, tuple(param.shape)) if is_divided else whole).clone()


def names_of(state: Mapping[str, Tensor], params: Mapping[str, Tensor]) -> dict[str, str]:
    """Every name of a trained parameter in a model's state (tied ones have several), and its name in `params`.

    `state` holds the parameters themselves: `state_dict(keep_vars=True)`.
    """
    names = {id(param): name for name, param in params.items()}
    return {name: names[id(tensor)] for name, tensor in state.items() if id(tensor) in names}


def load_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    prefix: str = "",
    place_of: PlaceOfHeld = whole_place,
    elsewhere: Collection[str] = (),
) -> None:
    """Copy weights, `<prefix><name>`, into a model; a CheckpointError shows the first name or shape that differs."""
    model.load_state_dict(parts_of(model.state_dict(), weights, prefix, place_of, elsewhere))


def parts_of(
    own: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    prefix: str = "",
    place_of: PlaceOfHeld = whole_place,
    elsewhere: Collection[str] = (),
) -> dict[str, Tensor]:
    """The parts of whole weights, `<prefix><name>`, that a worker holds; a CheckpointError shows what differs first.

    `place_of` gives the place in the whole of what the worker holds under a name; `elsewhere` are names that belong to
    the model, too, but may be held by other workers.
    """
    check_names(own, weights, prefix, elsewhere)
    return {
        name: read_part(name, weights[f"{prefix}{name}"], place_of(name, tensor), tensor)
        for name, tensor in own.items()
    }


def check_names(
    own: Mapping[str, Tensor], weights: Collection[str], prefix: str, elsewhere: Collection[str] = ()
) -> None:
    """Refuse the names of another model's weights: one that is here is missing, or one is not in the model."""
    for name, tensor in own.items():
        if f"{prefix}{name}" not in weights:
            raise CheckpointError(
                f"the weights are of another model: they lack '{name}' {tuple(tensor.shape)}"
            )
    for name in weights:
        plain = name.removeprefix(prefix)
        if name.startswith(prefix) and plain not in own and plain not in elsewhere:
            raise CheckpointError(f"the weights are of another model: '{plain}' is not in this model")


def read_part(name: str, whole: Tensor, place: Place, like: Tensor) -> Tensor:
    """The part of a whole tensor in this place, in the shape of `like`; refused if the whole has another shape."""
    if tuple(whole.shape) != place.shape:
        raise CheckpointError(
            f"the weights are of another model: '{name}' is {tuple(whole.shape)} there and {place.shape} here"
        )
    return place.read(whole, tuple(like.shape))
