"""What SGD alone refuses."""

import pytest
import torch

from shoal.errors import CheckpointError, ConfigError
from shoal.optim import SGD


def test_nesterov_without_momentum_is_refused() -> None:
    with pytest.raises(ConfigError, match="nesterov requires momentum, and momentum is 0"):
        SGD([torch.zeros(1)], lr=0.1, nesterov=True)


def test_momentum_of_one_or_more_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"SGD's momentum: expected a number ≥ 0 and < 1, got 1\.0"):
        SGD([torch.zeros(1)], lr=0.1, momentum=1.0)


def test_a_loaded_state_with_dampening_is_refused() -> None:
    saved = torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9, dampening=0.5).state_dict()
    with pytest.raises(CheckpointError, match=r"dampening = 0\.5; SGD supports only 0"):
        SGD([torch.zeros(1)], lr=0.1).load_state_dict(saved)


def test_without_momentum_nothing_is_remembered() -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3)
    optimizer = SGD([weight], lr=0.1, weight_decay=0.1)
    optimizer.step()
    assert not optimizer.state_dict()["state"]
