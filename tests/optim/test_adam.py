"""What Adam and AdamW alone do."""

import pytest
import torch

from shoal.errors import CheckpointError, ConfigError
from shoal.optim import Adam, AdamW


@pytest.mark.parametrize("betas", [(0.9, 1.0), (-0.1, 0.9), 0.9, (0.9,)])
def test_betas_out_of_range_are_refused(betas: object) -> None:
    with pytest.raises(ConfigError, match="Adam's betas: expected"):
        Adam([torch.zeros(1)], betas=betas)


def test_a_loaded_amsgrad_is_refused() -> None:
    saved = torch.optim.Adam([torch.zeros(1)], amsgrad=True).state_dict()
    with pytest.raises(CheckpointError, match="amsgrad = True; Adam supports only False"):
        Adam([torch.zeros(1)]).load_state_dict(saved)


def test_the_kind_of_decay_is_not_taken_for_the_other() -> None:
    saved = torch.optim.AdamW([torch.zeros(1)]).state_dict()
    AdamW([torch.zeros(1)]).load_state_dict(saved)
    with pytest.raises(CheckpointError, match="decoupled_weight_decay = True; Adam supports only False"):
        Adam([torch.zeros(1)]).load_state_dict(saved)


def test_the_moments_of_adamw_never_see_the_decay() -> None:
    moments = {}
    for kind in (Adam, AdamW):
        weight = torch.full((3,), 5.0, requires_grad=True)
        weight.grad = torch.ones(3)
        optimizer = kind([weight], weight_decay=0.5)
        optimizer.step()
        moments[kind] = optimizer.state[weight]["exp_avg"][0].item()
    assert moments[AdamW] == pytest.approx(0.1)
    assert moments[Adam] == pytest.approx(0.1 * 3.5)
