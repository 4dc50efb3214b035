"""Optimizers that a function of the user's builds: what is refused before the first step, and groups of slices."""

import pytest
import torch

from shoal.errors import ConfigError
from shoal.optim.over import build_over, groups_of, regroup


def params():
    return {"weight": torch.zeros(4, 3), "bias": torch.zeros(4), "scale": torch.zeros(())}


def by_shape(given):
    given = list(given)
    return torch.optim.SGD(
        [
            {"params": [param for param in given if param.dim() > 1], "weight_decay": 0.1},
            {"params": [param for param in given if param.dim() < 2], "lr": 0.5},
        ],
        lr=0.1,
    )


class Closing(torch.optim.SGD):
    def step(self, closure):
        return super().step(closure)


@pytest.mark.parametrize(
    ("make_optimizer", "sentence"),
    [
        (
            torch.optim.SGD([torch.zeros(3)], lr=0.1),
            "make_optimizer is a value of type SGD, expected a function",
        ),
        (lambda given: None, "make_optimizer returned a value of type NoneType"),
        (
            lambda given: torch.optim.SGD([torch.zeros(3)], lr=0.1),
            "SGD updates 1 of 1 tensors that make_optimizer",
        ),
        (torch.optim.LBFGS, "LBFGS.step needs the argument 'closure'"),
        (Closing, "Closing.step needs the argument 'closure'"),
    ],
)
def test_what_no_strategy_can_step_is_named(make_optimizer, sentence):
    with pytest.raises(ConfigError, match=sentence):
        build_over(make_optimizer, params().values())


def test_parameters_may_be_left_out():
    given = params()
    optimizer = build_over(lambda given: torch.optim.SGD([*given][:1], lr=0.1), given.values())
    assert groups_of(optimizer, given) == {"weight": 0}


def test_slices_are_in_the_groups_of_their_parameters():
    wholes = params()
    slices = {name: whole.view(-1) for name, whole in wholes.items()}
    groups = groups_of(build_over(by_shape, wholes.values()), wholes)
    optimizer = build_over(by_shape, slices.values())
    regroup(optimizer, slices, groups, num_groups=2)
    assert groups_of(optimizer, slices) == groups == {"weight": 0, "bias": 1, "scale": 1}
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]


def test_groups_that_depend_on_the_shapes_of_slices_are_refused():
    slices = {name: whole.view(-1) for name, whole in params().items()}
    optimizer = build_over(lambda given: torch.optim.SGD(given, lr=0.1), slices.values())
    with pytest.raises(ConfigError, match="2 parameter groups for the whole parameters, and 1 for slices"):
        regroup(optimizer, slices, {}, num_groups=2)
