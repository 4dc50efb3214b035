"""Partition rules that depend on labels. Each computes how many samples of each label each worker gets.

The counts are a matrix of workers × labels whose columns add up to the samples of each label; which samples a worker
gets is random:

::

    stratified    each row is proportional to the whole
    label         each row is zero except for a few labels
    dirichlet     each column is divided in random proportions

All parts are in random order.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.data.division.order import Parts, even_shares, parts_of_owners, shares_by_weight, whole_sizes
from shoal.data.seeds import generator_for
from shoal.errors import ConfigError, DataError


def stratified_partition(
    labels: Tensor, workers: int, seed: int, sizes: Sequence[float] | None = None
) -> Parts:
    """Parts with the label proportions of the whole: each label to within one sample, sizes exactly.

    >>> labels = torch.tensor([0] * 80 + [1] * 20)
    >>> [labels[part].bincount().tolist() for part in stratified_partition(labels, 4, seed=0)]
    [[20, 5], [20, 5], [20, 5], [20, 5]]
    """
    codes, per_label = label_codes(labels)
    counts = proportional_counts(whole_sizes(len(labels), workers, sizes), per_label)
    return _dealt(codes, counts, generator_for("partition", "stratified", seed))


def label_partition(labels: Tensor, workers: int, seed: int, labels_per_worker: int | None = None) -> Parts:
    """Parts with a few labels: each label has one owner, or each worker has `labels_per_worker` labels.

    Labels are assigned in random order, as evenly as possible; the owners of a label share its samples evenly. This is
    the hardest case for averaging models: no worker sees what most of the others learn.

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
    """The labels of each worker, assigned in the order of `names`, repeatedly if necessary."""
    if each is None:
        if workers > len(names):
            raise ConfigError(
                f"{len(names)} labels are too few for {workers} workers with labels of their own",
                "Use fewer workers, or let workers share labels: labels_per_worker=2.",
            )
        ends = torch.tensor(even_shares(len(names), workers)).cumsum(0).tolist()
        return [set(names[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    if not 1 <= each <= len(names) or workers * each < len(names):
        least = math.ceil(len(names) / workers)
        raise ConfigError(
            f"labels_per_worker is {each}, expected {least} to {len(names)} for {workers} workers and "
            f"{len(names)} labels",
            "Every label needs an owner, and no worker has a label twice.",
        )
    return [
        {names[slot % len(names)] for slot in range(rank * each, (rank + 1) * each)}
        for rank in range(workers)
    ]


def dirichlet_partition(labels: Tensor, workers: int, seed: int, alpha: float = 0.5) -> Parts:
    """Each label is divided in proportions drawn from Dirichlet(α, …, α), a common model of federated data.

    Large α: nearly equal proportions. α = 1: all proportions are equally likely. Small α: one worker has most of a
    label. Sizes are not controlled, and a part may be empty.

    >>> labels = torch.arange(1000) % 2
    >>> [labels[part].bincount(minlength=2).tolist() for part in dirichlet_partition(labels, 2, seed=0, alpha=0.3)]
    [[200, 498], [300, 2]]
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigError(f"partition dirichlet: alpha must be > 0, got {alpha:g}")
    codes, per_label = label_codes(labels)
    generator = generator_for("partition", "dirichlet", seed)
    proportions = dirichlet(alpha, len(per_label), workers, generator).tolist()
    columns = [shares_by_weight(count, parts) for count, parts in zip(per_label, proportions, strict=True)]
    return _dealt(codes, torch.tensor(columns).T, generator)


def proportional_counts(sizes: Sequence[int], per_label: Sequence[int]) -> Tensor:
    """Samples of each label for each worker, proportional; rows add up to sizes, columns to labels.

    Phase 1: each worker gets the integer part of size · label / N. Phase 2: for each label, the workers that lack most
    samples get one more each. This always succeeds (Gale and Ryser 1957; the fractions themselves are a solution), so
    every count is within one of its exact share.

    >>> proportional_counts((3, 3, 2), (4, 4))
    tensor([[2, 1],
            [1, 2],
            [1, 1]])
    """
    rows, columns = torch.tensor(sizes), torch.tensor(per_label)
    counts = rows[:, None] * columns // rows.sum().clamp_min(1)
    missing = rows - counts.sum(dim=1)
    for label, left in enumerate((columns - counts.sum(dim=0)).tolist()):
        one_more = missing.argsort(descending=True, stable=True)[:left]
        counts[one_more, label] += 1
        missing[one_more] -= 1
    return counts


def label_codes(labels: Tensor) -> tuple[Tensor, list[int]]:
    """The labels renumbered 0, 1, 2, …, and the number of samples of each; labels must be integers."""
    if labels.dim() != 1 or labels.is_floating_point():
        raise DataError(
            f"a partition by labels needs one integer per sample, "
            f"but the labels are {str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}",
            "Pass the classes of the samples as labels, or use a partition without labels: random.",
        )
    _, codes, per_label = labels.cpu().unique(return_inverse=True, return_counts=True)
    return codes, per_label.tolist()


def _dealt(codes: Tensor, counts: Tensor, generator: torch.Generator) -> Parts:
    """Parts with these counts of each label; samples and their order are random."""
    workers, num_labels = counts.shape
    order = torch.randperm(len(codes), generator=generator)
    by_label = order[codes[order].argsort(stable=True)]
    ranks = torch.arange(workers).repeat(num_labels)
    owners = torch.empty_like(codes)
    owners[by_label] = ranks.repeat_interleave(counts.T.flatten())
    return parts_of_owners(owners, workers, order)


def dirichlet(alpha: float, rows: int, width: int, generator: torch.Generator) -> Tensor:
    """Rows of `width` proportions that add up to 1, each row from Dirichlet(α, …, α), in float64.

    Independent Gamma(α) draws divided by their sum. For small α they underflow, so their logarithms are drawn:
    log Gamma(α) = log Gamma(α + 1) + log(U) / α.

    >>> dirichlet(1e-4, 3, 4, torch.Generator()).max(dim=1).values
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    uniform = 1 - torch.rand(rows, width, dtype=torch.float64, generator=generator)  # never zero
    logarithms = gamma(alpha + 1, (rows, width), generator).log() + uniform.log() / alpha
    return logarithms.softmax(dim=1)


def gamma(shape: float, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draws from Gamma(shape) for a shape of at least 1, in float64, by the method of Marsaglia and Tsang (2000).

    With d = shape − 1/3, d·(1 + x/√(9d))³ of a normal x has almost this distribution; rejection sampling makes it exact
    (at most one draw in twenty is repeated).
    """
    d = shape - 1 / 3
    drawn = torch.empty(math.prod(size), dtype=torch.float64)
    waiting = torch.arange(len(drawn))
    while len(waiting):
        normal = torch.randn(len(waiting), dtype=torch.float64, generator=generator)
        uniform = 1 - torch.rand(len(waiting), dtype=torch.float64, generator=generator)
        cube = (1 + normal / math.sqrt(9 * d)) ** 3
        # Where the cube is not positive its logarithm is NaN, and the comparison is false.
        accepted = uniform.log() < normal**2 / 2 + d * (1 - cube + cube.log())
        drawn[waiting[accepted]] = d * cube[accepted]
        waiting = waiting[~accepted]
    return drawn.view(size)
