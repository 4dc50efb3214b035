"""Which samples a node gets in an epoch, and in which order: random partition and random sampling.

A DataLoader gets the indices of its samples from a sampler. Every node has one, with the same seed and its own rank.
Only all samplers together divide the data set. No error message shows a wrong division: run check_sampler.py.
"""

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler


class MySampler(Sampler[int]):
    """Random partition: in every epoch each sample belongs to one node, and all shares are equal."""

    def __init__(
        self, dataset: Sized, num_replicas: int, rank: int, shuffle: bool = True, seed: int = 0
    ) -> None:
        self.dataset = dataset
        self.num_replicas = num_replicas  # number of nodes
        self.rank = rank  # number of this node
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch; all nodes call it before each epoch."""
        # task: set_epoch
        self.epoch = epoch
        # end: set_epoch

    def __len__(self) -> int:
        """The number of this node's samples in an epoch."""
        # task: length
        # From rank on every num_replicas-th: of 7 samples two nodes have 4 and 3.
        return len(range(self.rank, len(self.dataset), self.num_replicas))
        # end: length

    def __iter__(self) -> Iterator[int]:
        """The indices of this node's samples, in their order."""
        # task: random_partition
        count = len(self.dataset)  # of the whole data set, not of one node
        if self.shuffle:
            # The same permutation on all nodes: neither the seed nor anything else here depends on the rank.
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(count, generator=generator)
        else:
            order = torch.arange(count)
        return iter(order[self.rank :: self.num_replicas].tolist())
        # end: random_partition


class LabelSampler(MySampler):
    """Partition by label: node r has all samples of the labels r, r + num_replicas, … Given, for comparison."""

    def _mine(self) -> torch.Tensor:
        labels = self.dataset.tensors[1]  # pyright: ignore[reportAttributeAccessIssue]
        return torch.nonzero(labels % self.num_replicas == self.rank).flatten()

    def __len__(self) -> int:
        """The number of samples with this node's labels."""
        return len(self._mine())

    def __iter__(self) -> Iterator[int]:
        """Their indices, in another order in every epoch."""
        mine = self._mine()
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(mine), generator=generator) if self.shuffle else torch.arange(len(mine))
        return iter(mine[order].tolist())


class MyRandomSampler(MySampler):
    """Random sampling: each node draws its share from the whole data set, with replacement."""

    def __iter__(self) -> Iterator[int]:
        """The indices of the samples that this node draws."""
        # task: random_sampling
        # Here the nodes must differ: with the same generator all would draw the same samples.
        seed = (self.seed + self.epoch) * self.num_replicas + self.rank
        generator = torch.Generator().manual_seed(seed)
        return iter(torch.randint(len(self.dataset), (len(self),), generator=generator).tolist())
        # end: random_sampling
