"""Hold out a part of the training set for validation, so that the test set is read once, at the end."""

from dataclasses import replace

import torch
from torch import Tensor

from shoal.data.dataset import DataSet
from shoal.data.division.order import shares_by_weight
from shoal.data.seeds import generator_for
from shoal.errors import ConfigError


def hold_out(data: DataSet, fraction: float, seed: int) -> DataSet:
    """The data set with this fraction of its training samples moved to validation; 0 returns it unchanged.

    For classification the choice is stratified: each class gives the same fraction, up to rounding. Both parts
    keep the order of the files.
    """
    if fraction == 0:
        return data
    num_samples = len(data.train)
    held = round(fraction * num_samples)
    if not 0 < held < num_samples:
        raise ConfigError(
            f"data.validation {fraction:g} of {num_samples:,} training samples leaves "
            f"{held:,} for validation and {num_samples - held:,} for training",
            "Choose a fraction that leaves samples on both sides.",
        )
    strata = data.train.classes if data.task == "classification" else None
    if strata is None:  # or known once the samples are read
        strata = torch.zeros(num_samples, dtype=torch.int64)
    chosen = choose_stratified(strata, held, generator_for("validation", seed))
    is_held = torch.zeros(num_samples, dtype=torch.bool)
    is_held[chosen] = True
    return replace(
        data,
        train=data.train.take((~is_held).nonzero().flatten()),
        validation=data.train.take(is_held.nonzero().flatten()),
    )


def only(data: DataSet, num_samples: int) -> DataSet:
    """The data set with `num_samples` training samples: the same fraction of each label, always the same samples."""
    if num_samples > len(data.train):
        raise ConfigError(
            f"data.samples is {num_samples:,}, but {data.name} has {len(data.train):,} training samples",
            "Omit it to train on all of them.",
        )
    chosen = choose_stratified(data.train.labels, num_samples, generator_for("samples"))
    return replace(data, train=data.train.take(chosen.sort().values))


def choose_stratified(strata: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Indices of `count` random samples in which every stratum has its proportional share to within one sample.

    Phase 1: apportion `count` among the strata by largest remainder. Phase 2: take that many samples of each
    stratum from a random permutation.

    >>> strata = torch.tensor([0] * 80 + [1] * 20)
    >>> strata[choose_stratified(strata, 10, torch.Generator())].bincount()
    tensor([8, 2])
    """
    shuffled = torch.randperm(len(strata), generator=generator)
    by_stratum = shuffled[strata[shuffled].argsort(stable=True)]
    sizes = strata.bincount().tolist()
    quotas = shares_by_weight(count, sizes)
    return torch.cat([part[:quota] for part, quota in zip(by_stratum.split(sizes), quotas, strict=True)])
