"""Rules that go by labels. Each decides how many samples of each label each worker owns; chance decides which.

The numbers are a matrix of workers × labels whose columns add up to the samples of each label:

::

    stratified    every row in proportion to the whole
    label         every row zero but for a few labels
    dirichlet     every column divided in proportions that are drawn at random

All parts come in random order, so that they can be gone through as they are.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.data.division.dirichlet import dirichlet
from shoal.data.division.order import even_shares, shares_by_weight
from shoal.data.division.parts import Parts, parts_of_owners, whole_sizes
from shoal.data.seeds import generator_for
from shoal.errors import ConfigError, DataError


def stratified_partition(
    labels: Tensor, workers: int, seed: int, sizes: Sequence[float] | None = None
) -> Parts:
    """Each worker the label proportions of the whole: every label to within one sample, sizes exactly.

    >>> labels = torch.tensor([0] * 80 + [1] * 20)
    >>> [labels[part].bincount().tolist() for part in stratified_partition(labels, 4, seed=0)]
    [[20, 5], [20, 5], [20, 5], [20, 5]]
    """
    codes, per_label = label_codes(labels)
    counts = proportional_counts(whole_sizes(len(labels), workers, sizes), per_label)
    return _dealt(codes, counts, generator_for("partition", "stratified", seed))


def label_partition(labels: Tensor, workers: int, seed: int, labels_per_worker: int | None = None) -> Parts:
    """Each worker some labels: every label has one owner, or each worker has so many labels and they are shared.

    The labels are dealt in a random order, as evenly as they go; the owners of a label share its samples evenly.
    This is the hardest case for averaging models: no worker ever sees what most of the others learn.

    >>> labels = torch.arange(1000) % 10
    >>> [len(labels[part].unique()) for part in label_partition(labels, 4, seed=0)]
    [3, 3, 2, 2]
    >>> [len(labels[part].unique()) for part in label_partition(labels, 20, seed=0, labels_per_worker=2)][:5]
    [2, 2, 2, 2, 2]
    """
    codes, per_label = label_codes(labels)
    generator = generator_for("partition", "label", seed)
    names = torch.randperm(len(per_label), generator=generator).tolist()
    owned = _owned_labels(names, workers, labels_per_worker)
    counts = torch.zeros(workers, len(per_label), dtype=torch.int64)
    for label in names:
        owners = [rank for rank in range(workers) if label in owned[rank]]
        counts[owners, label] = torch.tensor(even_shares(per_label[label], len(owners)))
    return _dealt(codes, counts, generator)


def _owned_labels(names: Sequence[int], workers: int, each: int | None) -> list[set[int]]:
    """The labels of each worker, dealt in the order of `names`, from the beginning again if need be."""
    if each is None:
        if workers > len(names):
            raise ConfigError(
                f"{len(names)} labels cannot be owned by {workers} workers, a label by one worker",
                "Use fewer workers, or let workers share labels: labels_per_worker=2.",
            )
        ends = torch.tensor(even_shares(len(names), workers)).cumsum(0).tolist()
        return [set(names[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    if not 1 <= each <= len(names) or workers * each < len(names):
        least = math.ceil(len(names) / workers)
        raise ConfigError(
            f"labels_per_worker {each} does not do for {workers} workers and {len(names)} labels",
            f"Every label needs an owner, and a worker has no label twice: from {least} to {len(names)}.",
        )
    return [
        {names[slot % len(names)] for slot in range(rank * each, (rank + 1) * each)}
        for rank in range(workers)
    ]


def dirichlet_partition(labels: Tensor, workers: int, seed: int, alpha: float = 0.5) -> Parts:
    """Of every label each worker a part that is drawn from Dirichlet(α, …, α), as federated data is often modelled.

    Large α: all workers have nearly the same proportions. α = 1: all proportions are equally likely. Small α: most of
    a label is with one worker. Sizes differ as they come, and a part may be empty.

    >>> labels = torch.arange(1000) % 2
    >>> [labels[part].bincount(minlength=2).tolist() for part in dirichlet_partition(labels, 2, seed=0, alpha=0.3)]
    [[200, 498], [300, 2]]
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigError(f"partition dirichlet needs an alpha above 0, not {alpha:g}")
    codes, per_label = label_codes(labels)
    generator = generator_for("partition", "dirichlet", seed)
    proportions = dirichlet(alpha, len(per_label), workers, generator).tolist()
    columns = [shares_by_weight(count, parts) for count, parts in zip(per_label, proportions, strict=True)]
    return _dealt(codes, torch.tensor(columns).T, generator)


def proportional_counts(sizes: Sequence[int], per_label: Sequence[int]) -> Tensor:
    """How many samples of each label each worker gets: rows add up to sizes, columns to labels, nearly in proportion.

    Phase 1: everyone gets the whole part of size · label / N. Phase 2: label by label, what is left goes to those
    workers that miss most, one each. That always works out (Gale and Ryser 1957, since the fractions themselves are a
    solution), so every number is within one of its exact share.

    >>> proportional_counts((3, 3, 2), (4, 4))
    tensor([[2, 1],
            [1, 2],
            [1, 1]])
    """
    rows, columns = torch.tensor(sizes), torch.tensor(per_label)
    counts = rows[:, None] * columns // rows.sum().clamp_min(1)
    missing = rows - counts.sum(dim=1)
    for label, left in enumerate((columns - counts.sum(dim=0)).tolist()):
        neediest = missing.argsort(descending=True, stable=True)[:left]
        counts[neediest, label] += 1
        missing[neediest] -= 1
    return counts


def label_codes(labels: Tensor) -> tuple[Tensor, list[int]]:
    """The labels as 0, 1, 2 … in their order, and how many samples have each; labels must be whole numbers."""
    if labels.dim() != 1 or labels.is_floating_point():
        raise DataError(
            f"a partition by labels needs one whole number per sample, "
            f"and the labels are {str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}",
            "Give the classes of the samples as labels, or use a partition that goes by chance alone: random.",
        )
    _, codes, per_label = labels.cpu().unique(return_inverse=True, return_counts=True)
    return codes, per_label.tolist()


def _dealt(codes: Tensor, counts: Tensor, generator: torch.Generator) -> Parts:
    """Parts with so many samples of each label; chance decides which, and in what order."""
    workers, num_labels = counts.shape
    order = torch.randperm(len(codes), generator=generator)
    by_label = order[codes[order].argsort(stable=True)]
    ranks = torch.arange(workers).repeat(num_labels)
    owners = torch.empty_like(codes)
    owners[by_label] = ranks.repeat_interleave(counts.T.flatten())
    return parts_of_owners(owners, workers, order)
