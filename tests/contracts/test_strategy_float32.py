"""In float32, one step at a time from one machine's own state: the sum is as exact as sums are, the update to the bit.

Free-running float32 is compared nowhere: a rounding that flips one ReLU sends two correct runs apart.
"""

import pytest
import torch
from strategy_cases import (
    BATCH,
    OPTIMIZERS,
    SHARES,
    STRATEGIES,
    on_threads,
    rate,
    replica,
    share_of,
    single,
    state_of,
)
from torch.nn import functional as F

STEPS = 4
CASES = [
    ("naive", 2, "uneven", "adam", None),
    ("naive", 8, "empty", "sgd", 0.5),
    ("ddp", 2, "even", "adam", 0.5),
    ("ddp", 3, "empty", "adamw", None),
    ("ddp", 4, "uneven", "sgd", None),
    ("ddp", 8, "even", "gd", None),
    ("ddp, early", 3, "uneven", "adam", None),
    ("dp", 4, "uneven", "adam", 0.5),
]
MANY = 16
"""How many roundings an element of the sum may have seen: forward, backward and the sum itself."""


def small(optimizer, clip_norm=None, dtype=torch.float32):
    # Weights so small that no probability comes near 0 or 1, where p − y would be all rounding.
    return replica(OPTIMIZERS[optimizer], clip_norm=clip_norm, dtype=dtype, spread=0.3)


class Watched:
    """Keeps the gradients that a step updates with."""

    can_be_masked = False

    def __init__(self, mine, seen):
        self._update, self._params, self._seen = mine.update, mine.params, seen
        self.pieces, self.load = mine.update.pieces, mine.update.load

    def __call__(self, lr, **given):
        self._seen.append({name: param.grad.clone() for name, param in self._params.items()})
        self._update(lr, **given)


def watched(mine, seen):
    mine.update = Watched(mine, seen)
    return mine


def reference_path(optimizer, clip_norm):
    """The states of one machine before every step."""
    reference = single(small(optimizer, clip_norm))
    states = []
    for step in range(STEPS):
        states.append(state_of(reference))
        reference.step(share_of(reference, step, (BATCH,), dtype=torch.float32), rate(step))
    return states


def exact_gradient(state, step):
    """The gradient in float64, and the sum of its terms' absolute values: a term is what one sample adds."""
    model = small("gd", dtype=torch.float64).model
    model.load_state_dict({n.removeprefix("model."): p for n, p in state.items() if n.startswith("model.")})
    (batch,) = share_of(single(small("gd")), step, (BATCH,)).parts
    params = dict(model.named_parameters())
    total = {name: torch.zeros_like(param) for name, param in params.items()}
    terms = {name: torch.zeros_like(param) for name, param in params.items()}
    for sample, label in zip(batch.inputs, batch.labels, strict=True):
        loss = F.cross_entropy(model(sample.float().double()[None]), label[None]) / BATCH
        for name, grad in zip(params, torch.autograd.grad(loss, list(params.values())), strict=True):
            total[name] += grad
            terms[name] += grad.abs()
    return total, terms


def worst(gradients, state, step):
    """The largest error of a gradient, in units of ε·Σ|terms|."""
    exact, terms = exact_gradient(state, step)
    eps = torch.finfo(torch.float32).eps
    return max(
        ((gradients[name].double() - exact[name]).abs() / (eps * terms[name] + 1e-30)).max().item()
        for name in exact
    )


@pytest.mark.parametrize(("name", "size", "kind", "optimizer", "clip_norm"), CASES)
def test_one_step_from_one_machines_state(name, size, kind, optimizer, clip_norm):
    states = reference_path(optimizer, clip_norm)

    def work(group):
        seen = []
        strategy = STRATEGIES[name](watched(small(optimizer, clip_norm), seen), group)
        afters = []
        for step, state in enumerate(states):
            strategy.load(state)
            mine = share_of(strategy, step, SHARES[size][kind], parts=2, dtype=torch.float32)
            strategy.step(mine, rate(step))
            afters.append(state_of(strategy))
        return seen, afters

    for seen, afters in on_threads(size, work):
        for step, (state, gradients) in enumerate(zip(states, seen, strict=False)):
            assert worst(gradients, state, step) <= MANY
            again = small(optimizer, clip_norm)
            again.load(state)
            for key, param in again.params.items():
                param.grad = gradients[key].clone()
            again.update(rate(step))
            assert afters[step].keys() == again.pieces().keys()
            for key, piece in again.pieces().items():
                assert torch.equal(afters[step][key], piece), f"{key} after step {step}"


def test_a_lost_sample_is_far_outside():
    """The bound can be broken: by one sample of twelve, or by the mean of means."""
    state = reference_path("gd", None)[0]
    exact, _ = exact_gradient(state, 0)
    reference = single(small("gd"))
    (batch,) = share_of(reference, 0, (BATCH,), dtype=torch.float32).parts
    for kept in (slice(0, BATCH - 1), slice(1, BATCH)):
        mine = small("gd")
        mine.load(state)
        (
            F.cross_entropy(mine.model(batch.inputs[kept]), batch.labels[kept], reduction="sum") / BATCH
        ).backward()
        assert worst({name: param.grad for name, param in mine.params.items()}, state, 0) > 1000 * MANY
    half = {name: (0.5 * grad).float() for name, grad in exact.items()}
    assert worst(half, state, 0) > 1000 * MANY
