"""Signs and votes, worked out by hand."""

import torch

from shoal.codecs.sign import OneBit, Sign

MINE, YOURS, THEIRS = (
    torch.tensor(row) for row in ([3.0, -1.0, 1.0, -3.0], [1.0, 1.0, -1.0, -1.0], [4.0, -4.0, -4.0, 4.0])
)


def aggregated(codec, *rows):
    out = torch.full((4,), 99.0)
    codec.aggregate([codec.encode(row, 0) for row in rows], out, [0] * len(rows))
    return out.tolist()


def test_the_sum_of_scaled_signs():
    """The mean magnitudes are 2, 1 and 4."""
    assert aggregated(Sign(vote=False), MINE, YOURS, THEIRS) == [7, -5, -3, 1]


def test_the_majority_decides_the_sign_and_all_magnitudes_count():
    assert aggregated(Sign(vote=True), MINE, YOURS, THEIRS) == [7, -7, -7, -7]


def test_a_tie_is_zero():
    assert aggregated(Sign(vote=True), MINE, YOURS) == [3, 0, 0, -3]


def test_one_bit_sends_the_mean_of_each_sign():
    assert aggregated(OneBit(vote=False), torch.tensor([1.0, 5.0, -4.0, 0.0])) == [2, 2, -4, 2]
    assert aggregated(OneBit(vote=False), torch.ones(4)) == [1, 1, 1, 1]
    assert aggregated(OneBit(vote=True), MINE, MINE, YOURS) == [5, -5, 5, -5]
