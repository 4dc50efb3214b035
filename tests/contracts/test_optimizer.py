"""One exam that every optimizer passes, in its readable and in its fast step, on every device there is."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from shoal.errors import CheckpointError, ConfigError
from shoal.optim import SGD, Adam, AdamW

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@dataclass(frozen=True)
class Case:
    """An optimizer of ours with its options, and torch's of the same meaning."""

    ours: Callable[..., Any]
    theirs: Callable[..., torch.optim.Optimizer]
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.ours.__name__, *(f"{name}={value}" for name, value in self.options.items())])


CASES = [
    Case(SGD, torch.optim.SGD, {"lr": 0.05}),
    Case(SGD, torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.1}),
    Case(SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    Case(SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    Case(Adam, torch.optim.Adam, {"lr": 0.01}),
    Case(Adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.3, 0.0), "eps": 1e-3}),
    Case(Adam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    Case(AdamW, torch.optim.AdamW, {"lr": 0.01}),
    Case(AdamW, torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.3}),
]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
both_steps = pytest.mark.parametrize("fast", [False, True], ids=["readable", "fast"])
every_device = pytest.mark.parametrize("device", DEVICES)


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(device)


def odd_params(device: str = "cpu") -> list[Tensor]:
    """Parameters of every shape and memory layout that has ever surprised an optimizer."""
    params = [
        random(7, 5, seed=0, device=device),
        random(seed=1, device=device),  # a scalar
        random(0, 3, seed=2, device=device),  # no element at all
        random(4, 6, seed=3, device=device).T,
        random(2, 3, 4, 5, seed=4, device=device).contiguous(memory_format=torch.channels_last),
        random(5, 8, seed=5, device=device)[:, ::2],  # with gaps
        random(4, 3, 2, seed=6, device=device).permute(2, 0, 1)[:, 1:],  # with gaps, and permuted
        random(1, 9, seed=7, device=device).as_strided((1, 9), (40, 1)),  # an odd stride that is never taken
    ]
    return [param.requires_grad_() for param in params]


def give_gradients(params: list[Tensor], step: int) -> None:
    for index, param in enumerate(params):
        param.grad = random(
            *param.shape, seed=1000 * step + index, dtype=param.dtype, device=str(param.device)
        )


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    if theirs.numel():
        assert (ours - theirs).abs().max() <= 1e-12 * theirs.abs().max()


def assert_same_state(ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer) -> None:
    for (_, mine), (_, other) in zip(ours.state.items(), theirs.state.items(), strict=True):
        assert mine.keys() == other.keys()
        for name in other:
            assert_close(mine[name].detach().cpu(), other[name].detach().cpu())


def bits(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Everything an optimizer holds: parameters and their states, as copies."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    states = [value for param in params for value in optimizer.state.get(param, {}).values()]
    return [tensor.detach().clone() for tensor in [*params, *states]]


def assert_same_bits(left: list[Tensor], right: list[Tensor]) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert torch.equal(one, other)


@every_device
@both_steps
@every_case
def test_equals_torch_over_100_steps_with_a_rate_that_changes(case: Case, fast: bool, device: str) -> None:
    ours = case.ours(odd_params(device), **case.options, fast=fast)
    theirs = case.theirs(odd_params(device), **case.options, foreach=False)
    for step in range(100):
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["lr"] = case.options["lr"] * (1 + step % 7) / 7
            give_gradients(optimizer.param_groups[0]["params"], step)
            optimizer.step()
    for mine, other in zip(ours.param_groups[0]["params"], theirs.param_groups[0]["params"], strict=True):
        assert_close(mine.detach(), other.detach())
    assert_same_state(ours, theirs)


@every_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@every_case
def test_slicing_the_parameters_differently_changes_no_bit(
    case: Case, dtype: torch.dtype, device: str
) -> None:
    """Vector instructions take elements by the dozen and the rest one by one: both must round alike."""
    numel = 307
    whole = random(numel, seed=0, dtype=dtype, device=device)
    cuts = [[numel], [1] * numel, [2, 3, 5, 7, 11, 13, 266], [17, 31, 33, 63, 65, 98]]
    outcomes: list[list[Tensor]] = []
    for sizes in cuts:
        # Clones do not follow each other in memory, so they cannot be joined again.
        optimizer = case.ours(
            [piece.clone().requires_grad_() for piece in whole.split(sizes)], **case.options
        )
        for step in range(3):
            grad = random(numel, seed=step + 1, dtype=dtype, device=device)
            for param, piece in zip(optimizer.param_groups[0]["params"], grad.split(sizes), strict=True):
                param.grad = piece
            optimizer.step()
        held = [
            (param.detach(), *optimizer.state.get(param, {}).values())
            for param in optimizer.param_groups[0]["params"]
        ]
        outcomes.append([torch.cat(column) for column in zip(*held, strict=True) if column[0].dim()])
    for outcome in outcomes[1:]:
        assert_same_bits(outcome, outcomes[0])


@every_device
@both_steps
@every_case
def test_resuming_midway_changes_no_bit(case: Case, fast: bool, device: str) -> None:
    straight = case.ours(odd_params(device), **case.options, fast=fast)
    for step in range(3):
        give_gradients(straight.param_groups[0]["params"], step)
        straight.step()
    saved = copy.deepcopy(straight.state_dict())
    params = [param.detach().clone().requires_grad_() for param in straight.param_groups[0]["params"]]
    resumed = case.ours(params, **case.options, fast=fast)
    resumed.load_state_dict(saved)
    for step in range(3, 6):
        for optimizer in (straight, resumed):
            give_gradients(optimizer.param_groups[0]["params"], step)
            optimizer.step()
    assert_same_bits(bits(straight), bits(resumed))


@both_steps
@pytest.mark.parametrize("torch_first", [True, False], ids=["from torch", "to torch"])
@every_case
def test_state_dicts_exchange_with_torch(case: Case, torch_first: bool, fast: bool) -> None:
    def start(ours: bool, params: list[Tensor]) -> torch.optim.Optimizer:
        # A wrong rate, which the loaded state must put right.
        options = case.options | {"lr": 9.0}
        return case.ours(params, **options, fast=fast) if ours else case.theirs(params, **options)

    reference = case.theirs(odd_params(), **case.options)
    first = start(not torch_first, odd_params())
    first.param_groups[0]["lr"] = case.options["lr"]
    second = start(torch_first, odd_params())
    for step in range(4):
        give_gradients(reference.param_groups[0]["params"], step)
        reference.step()
    for step in range(2):
        give_gradients(first.param_groups[0]["params"], step)
        first.step()
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        for param, source in zip(
            second.param_groups[0]["params"], first.param_groups[0]["params"], strict=True
        ):
            param.copy_(source)
    for step in range(2, 4):
        give_gradients(second.param_groups[0]["params"], step)
        second.step()
    for mine, other in zip(
        second.param_groups[0]["params"], reference.param_groups[0]["params"], strict=True
    ):
        assert_close(mine.detach(), other.detach())
    assert_same_state(second, reference)


@both_steps
@every_case
def test_loading_leaves_the_source_alone(case: Case, fast: bool) -> None:
    first = case.ours(odd_params(), **case.options, fast=fast)
    second = case.ours(odd_params(), **case.options, fast=fast)
    give_gradients(first.param_groups[0]["params"], 0)
    first.step()
    before = bits(first)
    second.load_state_dict(first.state_dict())
    give_gradients(second.param_groups[0]["params"], 1)
    second.step()
    assert_same_bits(bits(first), before)


@both_steps
@every_case
def test_parameters_without_gradient_are_left_alone(case: Case, fast: bool) -> None:
    ours, theirs = (
        make(odd_params(), **case.options, **extra)
        for make, extra in ((case.ours, {"fast": fast}), (case.theirs, {}))
    )
    for step in range(6):
        for optimizer in (ours, theirs):
            params = optimizer.param_groups[0]["params"]
            give_gradients(params, step)
            params[0].grad = None  # never has one
            if step % 2:
                params[3].grad = None  # has one in every other step, so it counts its own steps
        params = ours.param_groups[0]["params"]
        resting = [params[index] for index in ([0, 3] if step % 2 else [0])]
        before = [
            (param.detach().clone(), copy.deepcopy(dict(ours.state.get(param, {})))) for param in resting
        ]
        ours.step()
        theirs.step()
        for param, (value, state) in zip(resting, before, strict=True):
            assert torch.equal(param.detach(), value)
            assert_same_bits(list(ours.state.get(param, {}).values()), list(state.values()))
    assert not ours.state.get(ours.param_groups[0]["params"][0])
    for mine, other in zip(ours.param_groups[0]["params"], theirs.param_groups[0]["params"], strict=True):
        assert_close(mine.detach(), other.detach())


@every_device
@both_steps
@every_case
def test_parameters_in_one_flat_buffer_equal_separate_ones(case: Case, fast: bool, device: str) -> None:
    """Neighbours in memory are updated as one, also after a resume, and also when one of them has no gradient."""
    sizes = [3, 64, 1, 500, 35]
    values, grads = (
        random(sum(sizes), seed=0, device=device),
        torch.empty(sum(sizes), dtype=torch.float64, device=device),
    )
    flat = [piece.requires_grad_() for piece in values.clone().split(sizes)]
    separate = [piece.clone().requires_grad_() for piece in values.split(sizes)]
    optimizers = [case.ours(params, **case.options, fast=fast) for params in (flat, separate)]
    for step in range(6):
        grads.copy_(random(sum(sizes), seed=step + 1, device=device))
        for optimizer in optimizers:
            for param, piece in zip(optimizer.param_groups[0]["params"], grads.split(sizes), strict=True):
                param.grad = piece
            if step == 2:
                optimizer.param_groups[0]["params"][1].grad = None
            if step == 4:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            optimizer.step()
    for mine, other in zip(flat, separate, strict=True):
        assert_close(mine.detach(), other.detach())
    if not fast:
        assert_same_bits(bits(optimizers[0]), bits(optimizers[1]))


@both_steps
@every_case
def test_groups_keep_options_of_their_own(case: Case, fast: bool) -> None:
    def groups() -> list[dict[str, Any]]:
        params = odd_params()
        return [{"params": params[:3]}, {"params": params[3:], "lr": 0.003, "weight_decay": 0.2}]

    ours, theirs = case.ours(groups(), **case.options, fast=fast), case.theirs(groups(), **case.options)
    for step in range(5):
        for optimizer in (ours, theirs):
            give_gradients([param for group in optimizer.param_groups for param in group["params"]], step)
            optimizer.step()
    assert_same_state(ours, theirs)
    for mine, other in zip(ours.param_groups[1]["params"], theirs.param_groups[1]["params"], strict=True):
        assert_close(mine.detach(), other.detach())


@both_steps
@every_case
def test_parameters_of_several_kinds_in_one_group(case: Case, fast: bool) -> None:
    kinds = [torch.float32, torch.float64, torch.bfloat16, torch.float32]
    mixed = [random(33, seed=0, dtype=torch.float64).to(dtype).requires_grad_() for dtype in kinds]
    alone = [param.detach().clone().requires_grad_() for param in mixed]
    optimizers = [case.ours(mixed, **case.options, fast=fast)]
    optimizers += [case.ours([param], **case.options, fast=fast) for param in alone]
    for step in range(3):
        for index, (left, right) in enumerate(zip(mixed, alone, strict=True)):
            left.grad = random(33, seed=10 * step + index).to(left.dtype)
            right.grad = left.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for left, right in zip(mixed, alone, strict=True):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)


@both_steps
@every_case
def test_a_closure_is_called_and_its_loss_returned(case: Case, fast: bool) -> None:
    weight = torch.tensor([3.0], requires_grad=True)
    optimizer = case.ours([weight], **case.options, fast=fast)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9.0
    assert weight.item() < 3.0


@both_steps
@every_case
def test_a_sparse_gradient_is_refused_before_anything_changes(case: Case, fast: bool) -> None:
    first, table = torch.ones(2, requires_grad=True), torch.ones(3, 2, requires_grad=True)
    optimizer = case.ours([("bias", first), ("table", table)], **case.options, fast=fast)
    first.grad, table.grad = torch.ones(2), torch.ones(3, 2).to_sparse()
    with pytest.raises(
        ConfigError, match=r"cannot use the sparse gradient of parameter 'table' \(shape \(3, 2\)\)"
    ):
        optimizer.step()
    assert torch.equal(first, torch.ones(2))
    assert not optimizer.state


@every_case
def test_complex_parameters_are_refused(case: Case) -> None:
    params = [torch.zeros(2), torch.zeros(3, dtype=torch.complex64)]
    with pytest.raises(ConfigError, match=r"parameter 1 of its group \(shape \(3,\)\) is complex64"):
        case.ours(params, **case.options)


@every_case
def test_no_parameters_at_all_are_refused(case: Case) -> None:
    with pytest.raises(ConfigError, match="got no parameters"):
        case.ours([], **case.options)


@pytest.mark.parametrize(
    ("name", "value"), [("lr", -0.1), ("weight_decay", -1.0), ("lr", float("nan")), ("lr", "1e-3")]
)
@every_case
def test_options_out_of_range_are_refused_by_name(case: Case, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{case.ours.__name__}'s {name}: expected .*, got {value!r}"):
        case.ours([torch.zeros(1)], **case.options | {name: value})


@every_case
def test_a_state_that_means_something_else_is_refused(case: Case) -> None:
    theirs = case.theirs([torch.zeros(1)], **case.options, maximize=True)
    with pytest.raises(CheckpointError, match="maximize = True"):
        case.ours([torch.zeros(1)], **case.options).load_state_dict(theirs.state_dict())


@every_case
def test_a_state_of_another_model_is_refused(case: Case) -> None:
    saved = case.theirs([torch.zeros(1), torch.zeros(2)], **case.options).state_dict()
    with pytest.raises(CheckpointError, match="another model"):
        case.ours([torch.zeros(1)], **case.options).load_state_dict(saved)


@both_steps
@every_case
def test_a_copy_steps_like_the_original(case: Case, fast: bool) -> None:
    original = case.ours(odd_params(), **case.options, fast=fast)
    give_gradients(original.param_groups[0]["params"], 0)
    original.step()
    twin = copy.deepcopy(original)
    assert twin.fast == fast
    for optimizer in (original, twin):
        give_gradients(optimizer.param_groups[0]["params"], 1)
        optimizer.step()
    assert_same_bits(bits(original), bits(twin))


@every_case
def test_every_optimizer_declares_that_it_may_be_cut_anywhere(case: Case) -> None:
    assert case.ours.elementwise is True
