"""Activation checkpointing computes the same bits, and saves less."""

import pytest
import torch
from activation_cases import MODELS, assert_same_bits, made, results
from torch import nn

from shoal.errors import ConfigError
from shoal.training.memory.checkpointing import checkpoint_blocks, recomputed_blocks


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_the_bits_are_those_of_keeping_everything(name, every):
    model, inputs, labels = made(name)
    expected = results(model, inputs, labels)
    model, inputs, labels = made(name)
    checkpoint_blocks(model, every)
    assert recomputed_blocks(model)
    assert_same_bits(results(model, inputs, labels), expected)


def test_zero_changes_nothing():
    model, *_ = made("transformer")
    checkpoint_blocks(model, 0)
    assert not any("forward" in vars(module) for module in model.modules())


def saved_bytes(model, inputs, labels):
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = model(inputs)
    del kept
    return sum(sizes.values()) - sum(param.nbytes for param in model.parameters())


def test_only_the_inputs_of_blocks_are_saved():
    plain = saved_bytes(*made("transformer"))
    model, inputs, labels = made("transformer")
    checkpoint_blocks(model, 1)
    assert saved_bytes(model, inputs, labels) < 0.3 * plain


def test_the_last_product_of_a_block_is_not_computed_again():
    calls = []
    model, inputs, labels = made("transformer")
    for block in model.blocks:
        block.fc2.register_forward_hook(lambda *_: calls.append("fc2"))
        block.fc1.register_forward_hook(lambda *_: calls.append("fc1"))
    checkpoint_blocks(model, 1)
    results(model, inputs, labels, backwards=1)
    assert (calls.count("fc1"), calls.count("fc2")) == (6, 3)


def test_evaluation_is_as_before():
    model, inputs, _ = made("resnet18")
    with torch.no_grad():
        expected = model.eval()(inputs)
        checkpoint_blocks(model, 1)
        assert torch.equal(model(inputs), expected)


def test_bfloat16_autocast_is_repeated():
    def in_bf16():
        return torch.autocast("cpu", torch.bfloat16)

    model, inputs, labels = made("transformer")
    expected = results(model, inputs, labels, in_bf16)
    model, inputs, labels = made("transformer")
    checkpoint_blocks(model, 1)
    assert_same_bits(results(model, inputs, labels, in_bf16), expected)


def test_backward_can_run_twice():
    model, inputs, _ = made("mlp")
    checkpoint_blocks(model, 1)
    loss = model(inputs).sum()
    loss.backward(retain_graph=True)
    first = model[1].weight.grad.clone()
    loss.backward()
    assert torch.equal(model[1].weight.grad, 2 * first)


def test_a_block_that_writes_into_its_input_is_refused():
    blocks = [nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 8)) for _ in range(2)]
    model = nn.Sequential(nn.Linear(8, 8), *blocks)
    checkpoint_blocks(model, 1)
    with pytest.raises(ConfigError, match="block '1' again: it writes into its input"):
        model(torch.ones(2, 8))


def test_a_block_that_saves_other_tensors_the_second_time_is_refused():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.calls = nn.Linear(8, 8), 0

        def forward(self, value):
            self.calls += 1
            return self.fc(value).tanh() if self.calls == 1 else self.fc(value)

    model = nn.Sequential(Counting(), Counting())
    checkpoint_blocks(model, 1)
    with pytest.raises(ConfigError, match="it saved 3 tensors for backward, and 2 when"):
        model(torch.ones(2, 8, requires_grad=True)).sum().backward()


def test_more_than_the_number_of_blocks_is_refused():
    with pytest.raises(ConfigError, match="but the model has 3"):
        checkpoint_blocks(made("transformer")[0], 4)
