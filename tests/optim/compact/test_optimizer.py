"""An optimizer with compact storage: what it stores, what it computes, and that slices equal the whole."""

import pytest
import torch

from shoal.errors import ConfigError
from shoal.optim import SGD, Adam, AdamW
from shoal.optim.compact.optimizer import CHUNK_PER_THREAD, Compact, Extent, Storage

EIGHT = Storage(state_bits=8)
RULES = {
    "sgd": lambda params, fast=False: SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01, fast=fast),
    "adam": lambda params, fast=False: Adam(params, lr=0.01, fast=fast),
    "adamw": lambda params, fast=False: AdamW(params, lr=0.01, fast=fast),
}


def tensors(seed=0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw).to(dtype) for shape in ((70, 100), (100,))]


def steps(optimizer, params, count=5, slices=None):
    for step in range(count):
        for param, grad in zip(params, tensors(100 + step), strict=False):
            param.grad = grad.to(param.dtype) if slices is None else grad.view(-1)[slices].to(param.dtype)
        optimizer.step()


@pytest.mark.parametrize("rule", RULES)
def test_float32_storage_has_the_rules_own_bits(rule):
    plain, stored = tensors(), tensors()
    steps(RULES[rule](plain), plain)
    steps(Compact(RULES[rule](stored), Storage()), stored)
    assert all(map(torch.equal, stored, plain))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("fast", [False, True])
def test_eight_bits_stay_near_the_rule(rule, fast):
    plain, stored = tensors(), tensors()
    steps(RULES[rule](plain, fast), plain)
    steps(Compact(RULES[rule](stored, fast), EIGHT), stored)
    moved = (plain[0] - tensors()[0]).abs().max()
    assert 0 < (stored[0] - plain[0]).abs().max() < 0.05 * moved
    assert torch.equal(stored[1], plain[1])  # a small parameter has state in float32


def test_bytes_of_state():
    params = tensors()
    optimizer = Compact(RULES["adam"](params), EIGHT)
    steps(optimizer, params, 1)
    large, small = (sum(each.nbytes for each in optimizer.state[param].values()) for param in params)
    assert large == 2 * (7000 + 4 * 28) + 4
    assert small == 2 * 400 + 4


@pytest.mark.parametrize("threads", [1, 2])
def test_a_chunk_of_each_thread_is_in_float32_at_a_time(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        param = torch.zeros(5 * CHUNK_PER_THREAD)
        optimizer = Compact(RULES["adam"]([param]), EIGHT)
        param.grad = torch.ones_like(param)
        optimizer.step()
    finally:
        torch.set_num_threads(before)
    buffers = optimizer._scratch._buffers
    assert {name: len(buffer) for (name, _), buffer in buffers.items()} == dict.fromkeys(
        ("exp_avg", "exp_avg_sq", "scaled"), threads * 65_536
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES)
def test_slices_equal_the_whole(rule, dtype):
    """Also the last slice, which has fewer elements than a small parameter."""
    (whole, _), (parts, _) = tensors(dtype=dtype), tensors(dtype=dtype)
    steps(Compact(RULES[rule]([whole]), EIGHT, {id(whole): Extent("w", 0, 7000)}), [whole])
    for first, last in ((0, 5120), (5120, 7000)):
        mine = parts.view(-1)[first:last]
        optimizer = Compact(RULES[rule]([mine]), EIGHT, {id(mine): Extent("w", first, 7000)})
        steps(optimizer, [mine], slices=slice(first, last))
    assert torch.equal(parts, whole)


@pytest.mark.parametrize("storage", [EIGHT, Storage()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES)
def test_goes_on_from_floats_to_the_same_bits(rule, dtype, storage):
    params = tensors(dtype=dtype)
    optimizer = Compact(RULES[rule](params), storage)
    steps(optimizer, params, 3)
    copies = [param.clone() for param in params]
    other = Compact(RULES[rule](copies), storage)
    for param, copy in zip(params, copies, strict=True):
        saved = {name: read().clone() for name, read in optimizer.floats_of(param).items()}
        assert all(value.dtype == torch.float32 for value in saved.values())
        other.load_floats(copy, {name: lambda value=value: value for name, value in saved.items()})
    steps(optimizer, params, 2)
    steps(other, copies, 2)
    assert all(map(torch.equal, copies, params))


def test_channels_last_parameter():
    (plain,), (stored,) = (
        [torch.randn(8, 16, 6, 6, generator=torch.Generator().manual_seed(0))] for _ in "ab"
    )
    stored = stored.to(memory_format=torch.channels_last)
    for param, optimizer in (
        (plain, RULES["adam"]([plain])),
        (stored, Compact(RULES["adam"]([stored]), Storage())),
    ):
        param.grad = torch.ones_like(plain).cumsum(0)
        optimizer.step()
    assert torch.equal(stored, plain)


def test_only_updates_these():
    params = tensors()
    optimizer = Compact(RULES["adam"](params), EIGHT)
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step(only=params[1:])
    assert torch.equal(params[0], tensors()[0])
    assert not torch.equal(params[1], tensors()[1])


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (lambda params: SGD(params, lr=0.1), "SGD has no state to store in 8 bits without momentum"),
        (lambda params: torch.optim.Adagrad(params), "for shoal's optimizers, and Adagrad is another"),
        (lambda params: Adam([param.double() for param in params]), "one is float64"),
    ],
)
def test_refused(rule, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Compact(rule(tensors()), EIGHT)
