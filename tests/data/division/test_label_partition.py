import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.data.division.label_partition import (
    dirichlet_partition,
    label_partition,
    proportional_counts,
    stratified_partition,
)
from shoal.errors import ConfigError

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=7)


def histogram(labels, parts):
    return torch.stack([labels[part].bincount(minlength=int(labels.max()) + 1) for part in parts])


@given(COUNTS.filter(any), st.data())
def test_proportional_counts_add_up_and_are_within_one_of_the_exact_share(per_label, data):
    # Cut the whole at any places: sizes of any kind, empty ones included.
    total = sum(per_label)
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=6)))
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]
    counts = proportional_counts(sizes, per_label)
    assert counts.sum(dim=1).tolist() == sizes
    assert counts.sum(dim=0).tolist() == per_label
    exact = torch.tensor(sizes)[:, None] * torch.tensor(per_label) / total
    assert (counts - exact).abs().max() <= 1
    assert counts.min() >= 0


def test_stratified_parts_have_the_proportions_of_the_whole():
    labels = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
    assert histogram(labels, stratified_partition(labels, 5, seed=3)).tolist() == [[180, 18, 2]] * 5


def test_a_stratified_part_is_not_sorted_by_label():
    labels = torch.tensor([0] * 500 + [1] * 500)
    first = labels[stratified_partition(labels, 2, seed=0)[0]]
    assert 50 < first[:250].sum() < 200


@pytest.mark.parametrize(("workers", "expected"), [(1, [10]), (2, [5, 5]), (4, [3, 3, 2, 2]), (10, [1] * 10)])
def test_every_label_has_one_owner(workers, expected):
    labels = torch.arange(1000) % 10
    counts = histogram(labels, label_partition(labels, workers, seed=0))
    assert ((counts > 0).sum(dim=0) == 1).all()
    assert (counts > 0).sum(dim=1).tolist() == expected


@given(st.integers(1, 8), st.integers(1, 12), st.data())
def test_so_many_labels_each_and_every_label_owned(num_labels, workers, data):
    least = -(-num_labels // workers)
    each = data.draw(st.integers(least, max(least, num_labels)))
    labels = torch.arange(num_labels).repeat(3 * workers)
    counts = histogram(labels, label_partition(labels, workers, seed=1, labels_per_worker=each))
    assert ((counts > 0).sum(dim=1) == each).all()
    owners = (counts > 0).sum(dim=0)
    assert owners.max() - owners.min() <= 1


@pytest.mark.parametrize(
    ("workers", "each", "sentence"),
    [
        (11, None, "10 labels are too few for 11 workers"),
        (4, 2, "labels_per_worker is 2, expected 3 to 10 for 4 workers and 10 labels"),
        (4, 11, "labels_per_worker is 11, expected"),
        (4, 0, "labels_per_worker is 0, expected"),
    ],
)
def test_labels_that_cannot_be_dealt_are_refused(workers, each, sentence):
    with pytest.raises(ConfigError, match=sentence):
        label_partition(torch.arange(100) % 10, workers, seed=0, labels_per_worker=each)


def test_alpha_decides_how_uneven_the_parts_are():
    labels = torch.arange(4000) % 10
    uneven = []
    for alpha in (0.05, 1.0, 1000.0):
        counts = histogram(labels, dirichlet_partition(labels, 4, seed=0, alpha=alpha)).double()
        uneven.append((counts.max(dim=0).values / counts.sum(dim=0)).mean().item())
    few_labels_each, between, alike = uneven
    assert few_labels_each > 0.9
    assert 0.4 < between < 0.8
    assert alike < 0.3


def test_tiny_alphas_give_each_label_to_one_worker_and_huge_ones_work_too():
    labels = torch.arange(100) % 10
    counts = histogram(labels, dirichlet_partition(labels, 4, seed=0, alpha=1e-6))
    assert ((counts == 10) | (counts == 0)).all()
    even = histogram(labels.repeat(4), dirichlet_partition(labels.repeat(4), 4, seed=0, alpha=1e9))
    assert (even == 10).all()


def test_labels_may_be_any_whole_numbers():
    labels = torch.tensor([-1, 1000] * 20)
    parts = label_partition(labels, 2, seed=0)
    assert sorted(labels[part].unique().tolist() for part in parts) == [[-1], [1000]]
