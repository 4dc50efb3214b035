"""What one worker has to itself under `local`: kept while the model is the average, and saved in checkpoints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import final

import torch
from torch import Tensor

from shoal.parallel.piece import Piece, by_name
from shoal.parallel.sync.local.fragment import Fragment


@final
class OwnState:
    """A copy of a worker's own weights, moments and buffers, and of the fragments whose averages it has not applied."""

    def __init__(self, pieces: Sequence[Piece], under_way: Iterable[Fragment]) -> None:
        self.tensors = {name: tensor.clone() for name, tensor in by_name(pieces).items()}
        self.fragments = {
            fragment: {key: flat.clone() for key, flat in state_of(fragment).items()}
            for fragment in under_way
        }

    def restore(self, pieces: Sequence[Piece]) -> None:
        """Copy everything back to where it was."""
        for name, tensor in by_name(pieces).items():
            tensor.copy_(self.tensors[name])
        for fragment, kept in self.fragments.items():
            for key, flat in state_of(fragment).items():
                flat.copy_(kept[key])


def state_of(fragment: Fragment) -> dict[str, Tensor]:
    """The state of a fragment whose average has arrived and is not applied yet."""
    return {
        "anchor": fragment.anchor,
        "momentum": fragment.momentum,
        "snapshot": fragment.snapshot,
        "difference": fragment.mean_difference,
    }


def by_parameter(
    prefix: str, flats: Mapping[Fragment, Tensor], params: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Flat tensors of fragments as one tensor for each parameter, zero where there is none, for a checkpoint."""
    wholes = {name: torch.zeros(param.shape, dtype=param.dtype) for name, param in params.items()}
    for fragment, flat in flats.items():
        for stretch, part in fragment.by_stretch(flat):
            stretch.of(wholes[stretch.name]).copy_(part)
    return {prefix + name: whole for name, whole in wholes.items()}


def load_by_parameter(prefix: str, flats: Mapping[Fragment, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Load flat tensors of fragments from what `by_parameter` saved, one parameter at a time."""
    by_name: dict[str, list[tuple[slice, Tensor]]] = {}
    for fragment, flat in flats.items():
        for stretch, part in fragment.by_stretch(flat):
            by_name.setdefault(stretch.name, []).append((slice(stretch.start, stretch.end), part))
    for name, parts in by_name.items():
        whole = saved[prefix + name].reshape(-1)
        for elements, part in parts:
            part.copy_(whole[elements])
