"""Sparse gradients of embeddings, summed over the workers: each worker sends only the rows that have a gradient."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from shoal.comm.group import Group


def sparse_params(module: nn.Module, params: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Those with sparse gradients: the tables of embeddings with `sparse=True`."""
    embeddings = [layer for layer in module.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]
    tables = {id(layer.weight) for layer in embeddings if layer.sparse}
    return {name: param for name, param in params.items() if id(param) in tables}


def sum_sparse(
    group: Group, params: Mapping[str, nn.Parameter], weight: float, look_at: Callable[[str, Tensor], None]
) -> None:
    """Make every gradient the sum of all workers', times their weights, and keep it sparse.

    Costs three all-gathers per parameter: number of rows, row numbers, rows. All are as long as the longest. A worker
    without a gradient has no rows; if no worker has any, the gradient stays None. `look_at(name, rows)` is called with
    this worker's rows before they are sent.
    """
    for name, param in params.items():
        indices = torch.empty(0, dtype=torch.int64, device=param.device)
        rows = torch.empty(0, *param.shape[1:], dtype=param.dtype, device=param.device)
        if param.grad is not None and weight:
            # A table that a dense layer shares has a dense gradient.
            grad = (param.grad if param.grad.is_sparse else param.grad.to_sparse(1)).coalesce()
            indices, rows = grad.indices()[0], grad.values() * weight
            look_at(name, rows)
        counts = [int(count) for count in _gathered(group, torch.tensor([len(indices)]), 1)]
        if not (most := max(counts)):
            continue
        held = torch.cat([torch.arange(count) + rank * most for rank, count in enumerate(counts)])
        indices, rows = (_gathered(group, each, most)[held.to(param.device)] for each in (indices, rows))
        total = torch.sparse_coo_tensor(indices[None], rows, param.shape, check_invariants=False)
        param.grad = total.coalesce()


def _gathered(group: Group, rows: Tensor, most: int) -> Tensor:
    """All workers' rows, each worker's padded to `most`."""
    padded = rows.new_zeros(most, *rows.shape[1:])
    padded[: len(rows)] = rows
    whole = padded.new_empty(group.size * most, *rows.shape[1:])
    group.all_gather(whole, padded).wait()
    return whole
