"""Which samples a node goes through in an epoch, and in which order: random partition and random sampling.

A sampler is handed to a DataLoader and gives it numbers of samples. Every node makes one, with the same seed and its
own rank; only together do they divide the data set, and an error stays silent: check_sampler.py counts.
"""

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler


class MySampler(Sampler[int]):
    """Random partition: in every epoch each sample belongs to exactly one node, and each node has an equal share."""

    def __init__(
        self, dataset: Sized, num_replicas: int, rank: int, shuffle: bool = True, seed: int = 0
    ) -> None:
        self.dataset = dataset
        self.num_replicas = num_replicas  # how many nodes there are
        self.rank = rank  # which of them this is
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; called by all nodes before each of them."""
        # task: set_epoch
        self.epoch = epoch
        # end: set_epoch

    def __len__(self) -> int:
        """How many samples this node has in an epoch."""
        # task: length
        # From rank on every num_replicas-th: of 7 samples two nodes have 4 and 3.
        return len(range(self.rank, len(self.dataset), self.num_replicas))
        # end: length

    def __iter__(self) -> Iterator[int]:
        """The numbers of this node's samples, in the order in which it goes through them."""
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
    """Parts by label, which are given: node r has all samples of the labels r, r + num_replicas, …

    The data set is a TensorDataset whose second tensor are the labels.
    """

    def _mine(self) -> torch.Tensor:
        labels = self.dataset.tensors[1]  # pyright: ignore[reportAttributeAccessIssue]
        return torch.nonzero(labels % self.num_replicas == self.rank).flatten()

    def __len__(self) -> int:
        """The samples of this node's labels."""
        return len(self._mine())

    def __iter__(self) -> Iterator[int]:
        """Its samples, in another order in every epoch."""
        mine = self._mine()
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(mine), generator=generator) if self.shuffle else torch.arange(len(mine))
        return iter(mine[order].tolist())


class MyRandomSampler(MySampler):
    """Random sampling: each node draws its share from the whole data set, with replacement.

    Some samples come twice, some not at all: of N draws about 63 % of the samples are seen by anyone.
    """

    def __iter__(self) -> Iterator[int]:
        """The numbers of the samples that this node draws."""
        # task: random_sampling
        # Here the nodes must differ: with the same generator all would draw the same samples.
        seed = (self.seed + self.epoch) * self.num_replicas + self.rank
        generator = torch.Generator().manual_seed(seed)
        return iter(torch.randint(len(self.dataset), (len(self),), generator=generator).tolist())
        # end: random_sampling
