"""The size of a network: what is stored, each value once."""

import pytest
import torch
from torch import nn

from shoal.training.prune.one_shot import NetworkSize, size_of


class Tied(nn.Module):
    """The last layer reads with the weights of the first, 40 values."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.tokens.weight


def test_weights_that_two_layers_share_count_once():
    assert size_of(Tied(), {}) == NetworkSize(num_values=40, num_bytes=160)


@pytest.mark.parametrize("name", ["tokens.weight", "head.weight"])
def test_the_mask_of_shared_weights_counts_under_any_of_their_names(name):
    kept = {name: torch.arange(40).view(10, 4) < 8}
    assert size_of(Tied(), kept) == NetworkSize(num_values=8, num_bytes=8 * 4 + 40 // 8)


def test_equal_weights_of_two_layers_count_twice():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].load_state_dict(model[0].state_dict())
    assert size_of(model, {"0.weight": torch.zeros(4, 4, dtype=torch.bool)}).num_values == 16
