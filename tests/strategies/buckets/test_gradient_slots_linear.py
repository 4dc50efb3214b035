"""Gradients of linear layers that are computed in their slots: the bits of autograd, and no copy."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shoal.comm.alone import alone
from shoal.comm.group import Finished, Group
from shoal.comm.threads.group import run_threads
from shoal.strategies.buckets.reducer import MOVED_BYTES, Reducer, ReducerOptions
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel

SIDE = int((MOVED_BYTES / 4) ** 0.5)
"""Of the smallest square matrix whose gradient is computed in its slot."""


def hook(param: Tensor, callback: Callable[[Tensor], None]) -> Callable[[], None]:
    return param.register_post_accumulate_grad_hook(callback).remove


def reducer_of(model: nn.Module) -> Reducer:
    params: dict[str, Tensor] = dict(model.named_parameters())
    reducer = Reducer(alone(), params, hook, lambda bucket: Finished(), ReducerOptions(2**62, 2**62))
    reducer.write_to_slots(model)
    return reducer


def gradients(model: nn.Module, run: Callable[[nn.Module], Tensor], reducer: Reducer | None) -> list[Tensor]:
    """The gradients of one step, with or without slots."""
    model.zero_grad()
    if reducer is not None:
        reducer.prepare()
    run(model).backward()
    if reducer is not None:
        reducer.complete()
        reducer.wait()
    return [param.grad.clone() for param in model.parameters() if param.grad is not None]


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, SIDE, generator=torch.Generator().manual_seed(1), dtype=dtype)


class Twice(nn.Module):
    """One layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.relu(self.layer(x)))


class Penalty(nn.Module):
    """A loss with the norm of a gradient, which needs gradients of gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        y = torch.tanh(self.layer(x))
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + gradient


class Checkpointed(nn.Module):
    """A block that is computed again in backward."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(SIDE, SIDE)
        self.second = nn.Linear(SIDE, SIDE)
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.second, torch.relu(self.first(x)), use_reentrant=self.use_reentrant)


class Looks(nn.Module):
    """Takes a gradient of its own weights on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(SIDE, SIDE)
        self.layer = nn.Linear(SIDE, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(self.layer(x).square().sum(), self.layer.weight)
        # Backward still needs the slopes when the layer's own gradient has been computed.
        return self.layer(self.first(x) * slope[0])


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(SIDE, SIDE),
    "no bias": lambda: nn.Linear(SIDE, SIDE, bias=False),
    "wide": lambda: nn.Sequential(nn.Linear(SIDE, 3 * SIDE), nn.ReLU(), nn.Linear(3 * SIDE, 10)),
    "twice": Twice,
    "penalty": Penalty,
    "checkpointed": lambda: Checkpointed(use_reentrant=False),
    "checkpointed, reentrant": lambda: Checkpointed(use_reentrant=True),
    "looks at gradients": Looks,
}


@pytest.mark.parametrize("shape", [(1,), (7,), (64,), (3, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_have_the_bits_of_autograd(name: str, shape: tuple[int, ...]) -> None:
    ours, torchs = seeded(MODELS[name]), seeded(MODELS[name])
    reducer = reducer_of(ours)

    def run(model: nn.Module) -> Tensor:
        return model(inputs(*shape)).square().mean()

    for _ in range(2):
        found, expected = gradients(ours, run, reducer), gradients(torchs, run, None)
        assert all(torch.equal(each, other) for each, other in zip(found, expected, strict=True))


def test_inputs_have_the_same_gradient() -> None:
    layer = seeded(lambda: nn.Linear(SIDE, SIDE))
    given = inputs(4).requires_grad_()
    (expected,) = torch.autograd.grad(layer(given).square().sum(), given)
    reducer = reducer_of(layer)
    reducer.prepare()
    layer(given).square().sum().backward()
    reducer.complete()
    assert given.grad is not None
    assert torch.equal(given.grad, expected)


def test_the_gradient_is_computed_in_its_slot() -> None:
    layer = nn.Linear(SIDE, SIDE)
    seen: list[int] = []
    layer.weight.register_post_accumulate_grad_hook(
        lambda param: seen.append(0 if param.grad is None else param.grad.data_ptr())
    )
    reducer = reducer_of(layer)
    gradients(layer, lambda model: model(inputs(4)).sum(), reducer)
    (slot,) = [view for view in reducer.buckets[0].views if view.dim() == 2]
    assert seen == [slot.data_ptr()]


def test_a_gradient_is_added_to_one_of_an_earlier_pass() -> None:
    ours, torchs = (seeded(lambda: nn.Linear(SIDE, SIDE)) for _ in range(2))
    reducer = reducer_of(ours)
    for model in (ours, torchs):
        model(inputs(3)).square().sum().backward()
    reducer.prepare()
    for model in (ours, torchs):
        model(inputs(5)).sum().backward()
    reducer.complete()
    for mine, other in zip(ours.parameters(), torchs.parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        assert torch.equal(mine.grad, other.grad)


def test_a_gradient_that_the_program_keeps_stays_as_it_is() -> None:
    layer = nn.Linear(SIDE, SIDE)
    reducer = reducer_of(layer)
    gradients(layer, lambda model: model(inputs(4)).sum(), reducer)
    kept = layer.weight.grad
    assert kept is not None
    before = kept.clone()
    gradients(layer, lambda model: 2 * model(inputs(4)).sum(), reducer)
    assert torch.equal(kept, before)
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, 2 * before)


def test_between_steps_a_layer_is_torchs_own() -> None:
    model = nn.Sequential(nn.Linear(SIDE, SIDE))
    reducer = reducer_of(model)
    gradients(model, lambda each: each(inputs(4)).sum(), reducer)
    assert "forward" not in vars(model[0])
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model[0].weight.zero_()
    assert twin(inputs(4)).abs().sum() > 0


def test_autocast_and_double_precision_go_the_usual_way() -> None:
    for dtype, autocast in ((torch.float32, True), (torch.float64, False)):
        ours, torchs = (seeded(lambda: nn.Linear(SIDE, SIDE)).to(dtype) for _ in range(2))

        def run(model: nn.Module, dtype: torch.dtype = dtype, autocast: bool = autocast) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                return model(inputs(4, dtype=dtype)).float().square().sum()

        found, expected = gradients(ours, run, reducer_of(ours)), gradients(torchs, run, None)
        assert all(torch.equal(each, other) for each, other in zip(found, expected, strict=True))


def test_a_subclass_and_a_replaced_weight_keep_their_own_forward() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return 2 * super().forward(input)

    model = nn.Sequential(Doubled(SIDE, SIDE), nn.Linear(SIDE, SIDE))
    twin = copy.deepcopy(model)
    reducer = reducer_of(model)

    def run(each: nn.Module) -> Tensor:
        weights = {"1.weight": next(each.parameters()) * 2}
        return torch.func.functional_call(each, weights, (inputs(4),)).sum()

    # The second layer's own weight has no gradient then.
    reducer.prepare()
    run(model).backward()
    run(twin).backward()
    mine, other = next(model.parameters()).grad, next(twin.parameters()).grad
    assert mine is not None
    assert other is not None
    assert torch.equal(mine, other)
    reducer.abandon()
    assert "forward" not in vars(model[1])


# Under the wrapper, where the program decides when forward and backward run.


class Vectorised(nn.Module):
    """Uses the transformations of `torch.func`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        slopes = torch.func.vmap(torch.func.grad(lambda each: self.layer(each).square().sum()))(x[:, None])
        return self.layer(x) + slopes[:, 0]


def two_forwards(model: nn.Module, x: Tensor) -> None:
    (model(x).square().mean() + model(2 * x).sum()).backward()


def two_backwards(model: nn.Module, x: Tensor) -> None:
    loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def an_error_between(model: nn.Module, x: Tensor) -> None:
    def fail(gradient: Tensor) -> Tensor:
        raise ZeroDivisionError

    given = x.clone().requires_grad_()
    given.register_hook(fail)
    with pytest.raises(ZeroDivisionError):
        model(given).sum().backward()
    model.zero_grad()
    model(x).square().mean().backward()


def accumulated(model: nn.Module, x: Tensor) -> None:
    with model.no_sync():  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        model(2 * x).sum().backward()
    model(x).square().mean().backward()


def a_copy_between(model: nn.Module, x: Tensor) -> None:
    loss = model(x).square().mean()
    twin = copy.deepcopy(model.module)
    with torch.no_grad():
        for param in twin.parameters():
            param.zero_()
        assert not twin(x).any(), "a copy computes with its own weights"
    saved = pickle.dumps(model.module)
    assert pickle.loads(saved)(x).equal(model.module(x))
    assert len(saved) < 1.1 * sum(param.nbytes for param in twin.parameters()), "gradients are not part of it"
    loss.backward()


PROGRAMS: list[Callable[[nn.Module, Tensor], None]] = [
    two_forwards,
    two_backwards,
    an_error_between,
    accumulated,
    a_copy_between,
]
WRAPPED = [*((program, Twice) for program in PROGRAMS), (two_forwards, Vectorised), (two_forwards, Looks)]


@pytest.mark.parametrize(("program", "make"), WRAPPED, ids=lambda each: each.__name__)
def test_the_wrapper_has_the_same_bits_with_and_without_slots(
    monkeypatch: pytest.MonkeyPatch,
    program: Callable[[nn.Module, Tensor], None],
    make: Callable[[], nn.Module],
) -> None:
    weights = seeded(make).state_dict()

    def work(group: Group) -> list[Tensor]:
        own = make()
        own.load_state_dict(weights)
        model = DistributedDataParallel(own, group)
        found: list[Tensor] = []
        for step in range(2):
            model.zero_grad()
            program(model, inputs(3 + group.rank + step))
            found += [param.grad.clone() for param in model.parameters() if param.grad is not None]
        return found

    with_slots = run_threads(2, work)
    monkeypatch.setattr(Reducer, "write_to_slots", lambda *_: None)
    without = run_threads(2, work)
    for ours, copied in zip(with_slots, without, strict=True):
        assert all(torch.equal(each, other) for each, other in zip(ours, copied, strict=True))


def test_a_hook_may_keep_gradients() -> None:
    layer = nn.Linear(SIDE, SIDE)
    kept: list[Tensor] = []
    layer.weight.register_hook(kept.append)
    reducer = reducer_of(layer)
    for factor in (1.0, 2.0):
        gradients(layer, lambda model, factor=factor: factor * model(inputs(4)).sum(), reducer)
    assert torch.equal(2 * kept[0], kept[1])


def test_a_forward_of_the_programs_own_stays() -> None:
    model = nn.Sequential(nn.Linear(SIDE, SIDE))
    reducer = reducer_of(model)
    doubled = model[0].forward = lambda x: 2 * nn.functional.linear(x, model[0].weight, model[0].bias)
    expected = model(inputs(4)).detach()
    reducer.prepare()
    found = model(inputs(4))
    found.sum().backward()
    reducer.complete()
    assert torch.equal(found, expected)
    assert model[0].forward is doubled
