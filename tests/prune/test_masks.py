"""Pruned weights stay zero under any optimizer, and masks are saved and restored."""

import pytest
import torch
from torch import nn

from shoal.config.sections.prune import MagnitudeConfig, MovementConfig
from shoal.errors import CheckpointError
from shoal.optim.adam import AdamW
from shoal.optim.sgd import SGD
from shoal.prune.masks import WeightMasks


class Careless:
    """Changes every weight in every step, whatever its gradient is."""

    def __init__(self, params):
        self._params = list(params)

    def zero_grad(self):
        for param in self._params:
            param.grad = None

    def step(self):
        for param in self._params:
            param.data += 0.5


OPTIMIZERS = {
    "momentum": lambda params: SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda params: SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda params: AdamW(params, lr=0.1),
    "careless": Careless,
}


def trained(model, optimizer, masks, steps, seed=0):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=draw)).square().sum().backward()
        masks.before_update()
        optimizer.step()
        masks.after_update()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pruned_weights_stay_zero_with_momentum_from_before(name):
    torch.manual_seed(0)
    model = nn.Linear(6, 5)
    optimizer = OPTIMIZERS[name](model.parameters())
    masks = WeightMasks(dict(model.named_parameters()), MagnitudeConfig(sparsity=0.8))
    trained(model, optimizer, masks, 3)
    assert (model.weight != 0).all()
    masks.prune()
    zero = model.weight == 0
    assert int(zero.sum()) == 24 == zero.numel() - masks.num_kept
    trained(model, optimizer, masks, 5)
    assert torch.equal(model.weight == 0, zero)
    assert (model.bias != 0).all()


def test_gradients_of_pruned_weights_are_not_seen_by_clipping():
    model = nn.Linear(6, 5)
    masks = WeightMasks(dict(model.named_parameters()), MagnitudeConfig(sparsity=0.5))
    masks.prune()
    model(torch.ones(2, 6)).sum().backward()
    masks.before_update()
    assert (model.weight.grad[~masks.kept["weight"]] == 0).all()


def test_movement_prunes_weights_that_move_towards_zero():
    param = nn.Parameter(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
    masks = WeightMasks({"w": param}, MovementConfig(sparsity=0.5))
    # Descent moves against the gradient: the first column towards zero, the second away from it.
    param.grad = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    masks.before_update()
    masks.prune()
    assert masks.kept["w"].tolist() == [[False, True], [False, True]]


def test_masks_are_restored_and_those_of_other_layers_refused():
    model = nn.Linear(6, 5)
    params = dict(model.named_parameters())
    first, second = (WeightMasks(params, MagnitudeConfig(sparsity=0.5)) for _ in range(2))
    first.prune()
    second.load({key: tensor for key, (_, tensor) in first.state().items()})
    assert second.sha256() == first.sha256()
    with pytest.raises(CheckpointError, match="no mask for 'weight'"):
        second.load({})
