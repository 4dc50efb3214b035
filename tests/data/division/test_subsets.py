"""`shoal.partition`: any torch data set, divided."""

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from shoal.data.division.partition import PARTITIONS
from shoal.data.division.subsets import partition
from shoal.errors import ConfigError, DataError


class Pictures(Dataset):
    """As torchvision's are: labels in `.targets`, pictures loaded only when asked for."""

    def __init__(self, targets):
        self.targets = targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return torch.full((1, 2, 2), float(index)), int(self.targets[index])


class Unreadable(Pictures):
    def __getitem__(self, index):
        raise AssertionError("dividing must not load samples")


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


LABELS = [0, 1, 2] * 20


@pytest.mark.parametrize("by", PARTITIONS)
def test_the_parts_are_torch_subsets_that_together_are_the_data_set(by):
    data = Pictures(LABELS)
    options = {"speeds": (3, 1)} if by == "speed" else {}
    parts = partition(data, workers=2, by=by, **options)
    assert len(parts) == 2
    assert all(isinstance(part, Subset) for part in parts)
    seen = [picture[0, 0, 0].item() for part in parts for picture, _ in part]
    assert sorted(seen) == list(range(60))


def test_a_part_goes_into_a_data_loader_as_it_is():
    part = partition(Pictures(LABELS), [0.5, 0.25, 0.25], seed=1)[1]
    batches = [labels for _, labels in DataLoader(part, batch_size=4, shuffle=True)]
    assert [len(batch) for batch in batches] == [4, 4, 4, 3]


def test_sizes_may_be_fractions_or_numbers_and_use_gives_a_rank_its_part():
    parts = partition(Pictures(LABELS), [0.7, 0.2, 0.1])
    assert [len(parts.use(rank)) for rank in range(3)] == [42, 12, 6]
    assert [len(part) for part in partition(Pictures(LABELS), [50, 10])] == [50, 10]
    assert [len(part) for part in parts[1:]] == [12, 6]
    assert repr(parts) == "Partition(by 'random': 42, 12, 6)"
    with pytest.raises(ConfigError, match="rank 3 is out of range for 3 workers"):
        parts.use(3)
    with pytest.raises(IndexError):
        parts[3]


@pytest.mark.parametrize(
    "data",
    [
        Pictures(LABELS),
        Pictures(torch.tensor(LABELS)),
        Pictures(np.array(LABELS)),
        Pictures(["cat", "dog", "eel"] * 20),
        TensorDataset(torch.zeros(60, 2), torch.tensor(LABELS)),
        Subset(Pictures([9] * 5 + LABELS), range(5, 65)),
        Subset(Subset(Pictures(["cat", "dog", "eel"] * 20), range(60)), list(range(60))),
    ],
    ids=["list", "tensor", "array", "words", "TensorDataset", "Subset", "Subset of a Subset"],
)
def test_labels_are_found_where_data_sets_keep_them(data):
    parts = partition(data, workers=3, by="label").parts
    labels = torch.tensor(LABELS)
    assert sorted(labels[part].unique().tolist() for part in parts) == [[0], [1], [2]]


def test_labels_can_be_given_and_samples_are_never_loaded():
    parts = partition(Unreadable([0] * 60), workers=2, by="stratified", labels=LABELS).parts
    assert torch.tensor(LABELS)[parts[0]].bincount().tolist() == [10, 10, 10]


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (Stream(), {"workers": 2}, "Stream cannot be divided: it has no __len__"),
        (Pictures([]), {"workers": 2}, "Pictures cannot be divided: it has no samples"),
        (range(10), {"workers": 2, "by": "label"}, "range has neither"),
        (
            ConcatDataset([Pictures(LABELS)]),
            {"workers": 2, "by": "dirichlet"},
            "ConcatDataset has neither",
        ),
        (TensorDataset(torch.zeros(60)), {"workers": 2, "by": "label"}, "TensorDataset has neither"),
        (Pictures(LABELS), {"workers": 2, "labels": LABELS[1:]}, "59 labels for 60 samples"),
        (Pictures(torch.rand(60)), {"workers": 2, "by": "label"}, "needs one integer per sample"),
    ],
)
def test_data_that_will_not_do_is_refused_in_one_sentence(data, options, sentence):
    with pytest.raises(DataError, match=sentence):
        partition(data, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "requires workers"),
        ({"workers": 0}, "≥ 1 or none, got 0"),
        ({"workers": 61}, "60 samples are too few for 61 workers"),
        ({"workers": 2, "sizes": [60]}, "1 sizes"),
        ({"workers": 2, "by": "stratfied"}, "did you mean 'stratified'"),
        ({"workers": 2, "alpha": 1.0}, "has no option 'alpha': it belongs to dirichlet"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_sentence(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        partition(Pictures(LABELS), **options)


def test_parts_may_be_empty_if_that_is_allowed():
    assert [len(part) for part in partition(Pictures([0, 1]), workers=3, allow_empty=True)] == [1, 1, 0]
