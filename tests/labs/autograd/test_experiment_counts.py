"""What the experiments count, which no clock decides."""

import torch

from shoal.autograd import Tape, Variable
from shoal_labs.autograd.experiment import (
    from_the_left,
    from_the_right,
    measure_caching,
    measure_chains,
    recurring,
)
from shoal_labs.autograd.networks import forward_passes, gradients_of, peak_bytes, peak_of, random_batch
from shoal_labs.autograd.plan import ENGINES, AutogradPlan

TINY = AutogradPlan(
    rounds=2,
    contest_s=0.0,
    compilations=2,
    fresh_processes=1,
    batch_size=2,
    recurrences=(1, 3),
    chain_sizes=(4, 8),
    distinct=5,
)


def test_a_sharing_tape_keeps_fewer_entries_where_something_recurs_and_as_many_where_nothing_does():
    found = measure_caching(TINY)
    once, thrice = found.recurring
    assert once.plain_entries == once.sharing_entries
    assert thrice.sharing_entries == thrice.plain_entries - 4  # two products and two tanh less
    assert thrice.sharing_bytes < thrice.plain_bytes
    assert found.distinct.plain_entries == found.distinct.sharing_entries == TINY.distinct


def test_the_recurring_expression_is_the_weighted_sum_it_says():
    x, w = Variable(torch.rand(2, 3)), Variable(torch.rand(3, 3))
    with Tape():
        total = recurring(x, w, 3)
    assert torch.allclose(total.value, 6 * torch.tanh(x.value @ w.value).sum())


def test_both_orders_of_the_chain_agree_and_the_compiler_saves_multiplications():
    matrices = [Variable(torch.rand(4, 4)) for _ in range(3)] + [Variable(torch.rand(4, 1))]
    with Tape():
        left, right = from_the_left(*matrices), from_the_right(*matrices)
    assert torch.allclose(left.value, right.value)
    for chain in measure_chains(TINY):
        n = chain.size
        assert chain.multiplications_written == 2 * n**3 + n**2
        assert chain.multiplications_compiled == 3 * n**2


def test_all_engines_give_the_same_gradients_to_the_lab():
    batch = random_batch(4, seed=1)
    found = {}
    for engine in ENGINES:
        gradients, params = gradients_of(engine, "mlp", seed=1)
        gradients(batch)
        found[engine] = [param.grad.clone() for param in params]
    for engine in ("dynamic", "static"):
        for ours, theirs in zip(found[engine], found["torch"], strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_forward_pass_is_there_for_every_engine():
    for call in forward_passes("mlp", seed=0, size=1).values():
        call()


def test_peak_memory_counts_what_is_held_at_once():
    kib = 1024
    assert peak_bytes(lambda: [torch.empty(kib, dtype=torch.uint8) for _ in range(3)]) >= 3 * kib
    one_after_the_other = peak_bytes(
        lambda: [torch.empty(8 * kib, dtype=torch.uint8).dim() for _ in range(9)]
    )
    assert 8 * kib <= one_after_the_other < 4 * 8 * kib
    batch = random_batch(2, seed=0)
    weights = 4 * 109_386
    assert peak_of("dynamic", "mlp", 0, batch) >= weights  # a gradient for every weight
    assert peak_of("static", "mlp", 0, batch) >= weights
