import math

import pytest
import torch
from torch import nn

from shoal.models.initialise import generator_of, initialise
from shoal.models.resnet18 import resnet18
from shoal.models.transformer import transformer


def test_a_stage_alone_gets_what_the_whole_model_has_there():
    whole, other = resnet18(width=4), resnet18(width=4)
    initialise(whole, seed=5)
    initialise(other.stage3, seed=5, prefix="stage3")
    for name, param in whole.stage3.named_parameters():
        assert torch.equal(param, other.stage3.get_parameter(name)), name


def test_equal_shapes_get_different_numbers():
    net = nn.Sequential(nn.Linear(50, 50), nn.Linear(50, 50))
    initialise(net, seed=0)
    assert not torch.equal(net[0].weight, net[1].weight)


@pytest.mark.parametrize("layer", [nn.Linear(400, 300), nn.Conv2d(16, 64, 5), nn.Conv2d(16, 64, 5, groups=4)])
def test_linear_layers_have_the_distribution_of_torch(layer):
    torchs_own = layer.weight.detach().clone()
    initialise(layer, seed=0)
    bound = 1 / math.sqrt(layer.weight[0].numel())
    for tensor in (layer.weight, layer.bias):
        assert tensor.abs().max() <= bound
        assert tensor.abs().max() > 0.9 * bound
    assert layer.weight.mean().abs() < 0.05 * bound
    assert layer.weight.std().item() == pytest.approx(torchs_own.std().item(), rel=0.03)


def test_norms_start_as_identity_and_embeddings_small():
    net = transformer(width=64)
    initialise(net, seed=0)
    assert (net.norm.weight == 1).all()
    assert (net.norm.bias == 0).all()
    assert net.tokens.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_buffers_are_set_even_if_memory_held_anything():
    net = resnet18(width=4)
    for tensor in net.state_dict().values():
        tensor.fill_(99)
    initialise(net, seed=0)
    assert (net.norm1.running_mean == 0).all()
    assert (net.norm1.running_var == 1).all()
    assert net.norm1.num_batches_tracked == 0
    assert not any((tensor == 99).any() for tensor in net.state_dict().values())


def test_another_precision_starts_from_the_same_numbers():
    single, double = nn.Linear(7, 3), nn.Linear(7, 3).double()
    initialise(single, seed=0)
    initialise(double, seed=0)
    assert torch.equal(single.weight.double(), double.weight)


def test_the_number_of_threads_does_not_matter():
    before = torch.get_num_threads()
    weights = []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            layer = nn.Embedding(256, 400)
            initialise(layer, seed=0)
            weights.append(layer.weight.detach())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*weights)


def test_generators_differ_by_seed_and_by_name():
    draws = {
        tuple(torch.rand(2, generator=generator_of(seed, name)).tolist())
        for seed in (-1, 0, 1, 2**63)
        for name in ("fc1.weight", "fc1.bias", "fc2.weight")
    }
    assert len(draws) == 12


def test_a_layer_without_a_rule_is_named():
    with pytest.raises(TypeError, match="inner of type Bilinear"):
        initialise(nn.ModuleDict({"inner": nn.Bilinear(2, 2, 2)}), seed=0)
