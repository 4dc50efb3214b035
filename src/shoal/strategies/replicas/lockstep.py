"""Parts of a share in lockstep: all workers run the model the same number of times, if necessary on empty batches.

For models whose forward pass contains collectives (synchronised batch norm, gathered parameters).
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.comm.signature import DTYPES
from shoal.data.dataset import Batch
from shoal.errors import ConfigError

MOST_DIMS = 8
FORM_NUMEL = 2 + MOST_DIMS


def in_lockstep(group: Group, parts: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The parts, then empty ones while other workers have parts. Costs a small all-reduce per part."""
    mine = iter(parts)
    while True:
        part = next(mine, None)
        form = torch.zeros(2 * FORM_NUMEL, dtype=torch.int64)
        if part is not None:
            form = torch.cat([form_of(each[:0]) for each in (part.inputs, part.labels)])
        # All samples have the same form: workers with a part send it to those without.
        group.all_reduce(form, Op.MAX).wait()
        if not form.any():
            return
        if part is None:
            inputs, labels = (empty_of(half, device) for half in form.chunk(2))
            part = Batch(inputs, labels, 0)
        yield part


def in_rounds(group: Group, parts: Iterable[Batch]) -> Iterator[Batch | None]:
    """The parts, then None while other workers have parts: for workers that sum the gradients of every part.

    Costs a small all-reduce per part, which runs while the part is computed where the group allows it.
    """
    mine = iter(parts)
    part = next(mine, None)
    while True:
        following = next(mine, None)
        goes_on = torch.tensor([following is not None], dtype=torch.int32)
        work = group.all_reduce(goes_on, Op.MAX)
        yield part
        work.wait()
        if not goes_on.item():
            return
        part = following


def form_of(tensor: Tensor) -> Tensor:
    """The dtype and shape of samples as `FORM_NUMEL` numbers, of which the first is above 0."""
    if tensor.dim() > MOST_DIMS:
        raise ConfigError(
            f"samples have {tensor.dim() - 1} dimensions; at most {MOST_DIMS - 1} are supported"
        )
    padding = [0] * (MOST_DIMS - tensor.dim())
    return torch.tensor([1 + DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape, *padding])


def empty_of(form: Tensor, device: torch.device) -> Tensor:
    """An uninitialised tensor of that form."""
    kind, dims, *lengths = form.tolist()
    return torch.empty(lengths[:dims], dtype=DTYPES[kind - 1], device=device)
