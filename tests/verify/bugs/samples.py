"""Bugs of data: who draws which samples."""

import torch
from bugs.program import Program, Wrapped, bug
from torch.utils.data import DataLoader, Sampler


class Own(Sampler):
    """A sampler of few lines, as students write them."""

    def __init__(self, data, size, rank):
        self.data, self.size, self.rank, self.number = data, size, rank, 0

    def set_epoch(self, number):
        self.number = number

    def order(self, seed=0):
        return torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed)).tolist()

    def __len__(self):
        return len(self.data) // self.size

    def __iter__(self):
        return iter(self.order(self.number)[self.rank :: self.size])


class OwnSampler(Program):
    kind: type[Own] = Own

    def sampler(self, data):
        return self.kind(data, self.size, self.rank)


@bug(0, "data", None, "samples", "all workers draw the same")
class NoSampler(Program):
    def loader(self, data):
        return DataLoader(data, self.batch_size)

    def begin_pass(self, loader, number):
        pass


@bug(3, "data", None, "samples", "set_epoch")
class SetEpochMissing(Wrapped):
    def begin_pass(self, loader, number):
        pass


class SeededByRank(Own):
    def __iter__(self):
        return iter(self.order(self.rank)[self.rank :: self.size])


@bug(0, "data", 2, "samples", "has drawn")
class PermutationSeededByRank(OwnSampler):
    kind = SeededByRank


class OwnRange(Own):
    """It ranges over the samples of one worker instead of the whole set."""

    def __iter__(self):
        count = len(self)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(self.number)).tolist()
        return iter(order)


@bug(0, "data", None, "samples", "the same samples")
class RangesOverOneShare(OwnSampler):
    kind = OwnRange


class Halves(Own):
    def __iter__(self):
        mine = self.order(self.number)[: len(self.data) // 2]
        return iter(mine[self.rank :: self.size])


@bug(2, "data", None, "samples", "never drawn")
class HalfIsNeverSeen(OwnSampler):
    kind = Halves
    batch_size = 2


class Overlapping(Own):
    """Blocks whose ends reach into the next."""

    def __iter__(self):
        count = len(self)
        start = self.rank * count
        order = self.order(self.number) * 2
        return iter(order[max(0, start - 2 * (self.rank > 0)) : start + count - 2 * (self.rank > 0)])


@bug(2, "data", 0, "samples", "has drawn")
class BlocksOverlap(OwnSampler):
    kind = Overlapping


class Uneven(Own):
    def __iter__(self):
        count = 8 if self.rank == 1 else 12
        return iter(self.order(self.number)[self.rank :: self.size][:count])

    def __len__(self):
        return 8 if self.rank == 1 else 12


@bug(1, "data", 1, "samples", "2 batches")
class OneRankHasFewer(OwnSampler):
    kind = Uneven
    passes = 1

    def train(self):
        self.exchange = lambda model: None  # the others do not wait for it
        super().train()


class Replaced(Own):
    """Drawn with replacement."""

    def __iter__(self):
        draw = torch.Generator().manual_seed(self.number)
        order = torch.randint(0, len(self.data), (len(self.data),), generator=draw).tolist()
        return iter(order[self.rank :: self.size])


@bug(0, "data", 1, "samples", "has drawn")
class DrawnWithReplacement(OwnSampler):
    kind = Replaced


@bug(0, "data", 2, "samples", "has a sample that")
class SlicesOfOwnPermutations(Program):
    """No DataLoader: each worker takes its slice of a permutation with a seed of its own."""

    def loader(self, data):
        return Slices(self, data)

    def begin_pass(self, loader, number):
        loader.seed = number + self.rank


class Slices:
    def __init__(self, program, data):
        self.program, self.data, self.seed = program, data, 0

    def __iter__(self):
        draw = torch.Generator().manual_seed(self.seed)
        inputs, labels = self.data.tensors
        order, size = torch.randperm(len(inputs), generator=draw), 12
        for start in range(0, len(order), size):
            mine = order[start : start + size][self.program.rank :: self.program.size]
            yield inputs[mine], labels[mine]
