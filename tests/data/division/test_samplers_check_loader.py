import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset
from torch.utils.data import DistributedSampler as TorchSampler

from shoal.data.division.samplers import DistributedSampler, PartitionSampler, check_loader
from shoal.data.division.subsets import partition
from shoal.errors import ConfigError

DATA = TensorDataset(torch.arange(12))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(DATA, sampler=DistributedSampler(DATA, 3, 0)),
        DataLoader(DATA, sampler=PartitionSampler(DATA, 3, 0)),
        DataLoader(DATA, sampler=TorchSampler(DATA, 3, 0)),
        DataLoader(DATA, batch_sampler=BatchSampler(DistributedSampler(DATA, 3, 0), 2, drop_last=False)),
        DataLoader(DATA, batch_sampler=[[0, 1], [2]]),
        DataLoader(partition(DATA, workers=3)[0], shuffle=True),
        DataLoader(DATA, sampler=[0, 1, 2]),
        DataLoader(Stream()),
    ],
)
def test_loaders_that_divide_the_data_pass(loader):
    check_loader(loader, num_replicas=3)


@pytest.mark.parametrize(
    ("loader", "sentence"),
    [
        (DataLoader(DATA), "gives each of 3 workers all 12 samples: its sampler is a SequentialSampler"),
        (DataLoader(DATA, shuffle=True), "its sampler is a RandomSampler"),
        (DataLoader(DATA, sampler=DistributedSampler(DATA, 2, 0)), "among 2 workers, but there are 3"),
        (DataLoader(DATA, sampler=TorchSampler(DATA, 4, 0)), "among 4 workers, but there are 3"),
    ],
)
def test_loaders_that_do_not_are_refused_in_one_sentence(loader, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_loader(loader, num_replicas=3)


def test_one_worker_may_have_everything():
    check_loader(DataLoader(DATA, shuffle=True), num_replicas=1)
