"""Clipping in a user's loop with `shoal.Pipeline` and `shoal.tensor_parallel`: the norm is that of the whole model."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError
from shoal.strategies.library.part_gradients import PartGradient

utils = nn.utils
INPUTS = torch.linspace(-2, 2, 12 * 6, dtype=torch.float64).view(12, 6).sin()
LABELS = torch.arange(12) % 3


def network():
    return drawn(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)))


def drawn(model):
    draw = torch.Generator().manual_seed(0)
    for param in model.parameters():
        nn.init.normal_(param, std=0.5, generator=draw)
    return model.double()


WAYS = {
    "pipeline": lambda model, group: shoal.Pipeline(model, group, loss=nn.CrossEntropyLoss(), cut=["2"]),
    # The last layer is whole on both workers.
    "tensor": lambda model, group: shoal.tensor_parallel(model, group, {"0": "column", "2": "row"}),
    # Two layers that one worker has, and one that both have.
    "by function": lambda model, group: shoal.tensor_parallel(
        towers(), group, {"left": "worker 0", "right": "worker 1"}
    ),
}


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.join = nn.Linear(3, 8), nn.Linear(3, 5), nn.Linear(13, 3)

    def forward(self, inputs):
        return self.join(torch.cat((self.left(inputs[:, :3]), self.right(inputs[:, 3:])), dim=1).tanh())


def towers():
    return drawn(Towers())


def recipe(params):
    """As programs wrote it before there was a function for it."""
    total = torch.norm(torch.stack([torch.norm(param.grad.detach(), 2) for param in params]), 2)
    for param in params:
        param.grad.mul_(torch.clamp(0.05 / (total + 1e-6), max=1.0))
    return total


CLIPS = {
    "plain": lambda params: utils.clip_grad_norm_(params, 0.05, error_if_nonfinite=True),
    "foreach": lambda params: utils.clip_grad_norm_(params, 0.05, foreach=True),
    "one by one": lambda params: utils.clip_grad_norm_(params, 0.05, foreach=False),
    "order 1": lambda params: utils.clip_grad_norm_(params, 0.05, norm_type=1.0),
    "largest": lambda params: utils.clip_grad_norm_(params, 0.05, norm_type=torch.inf),
    "recipe": recipe,
    "values": lambda params: utils.clip_grad_value_(params, 0.01),
}


def train(model, step, clip, make=torch.optim.Adam):
    optimizer, found = make(model.parameters(), lr=0.05), []
    for _ in range(3):
        optimizer.zero_grad()
        step()
        found.append(clip([param for group in optimizer.param_groups for param in group["params"]]))
        optimizer.step()
    return found, F.cross_entropy(model(INPUTS), LABELS).detach(), optimizer


def step_of(model):
    if isinstance(model, shoal.Pipeline):
        return lambda: model.step(INPUTS, LABELS)
    return lambda: F.cross_entropy(model(INPUTS), LABELS).backward()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("clip", CLIPS)
def test_clipping_equals_one_machines(way, clip):
    def work(group):
        model = WAYS[way](network(), group)
        return train(model, step_of(model), CLIPS[clip])[:2]

    expected = towers() if way == "by function" else network()
    wanted = train(expected, step_of(expected), CLIPS[clip])[:2]
    for found in run_threads(2, work):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_is_a_tensor_like_any_other(way):
    """Numbers can be read by one worker alone, and the optimizer's state is of plain tensors."""

    def work(group):
        def look(params):
            first = params[0].grad
            if group.rank == 0:
                assert first.numpy().shape == tuple(first.shape)
                assert torch.tensor(first.tolist()).shape == first.shape
                assert first.norm().item() == pytest.approx(
                    torch.tensor(first.tolist()).double().norm().item()
                )
                assert (2 * first).abs().max() > 0

        model = WAYS[way](network(), group)
        momentum = lambda params, lr: torch.optim.SGD(params, lr, momentum=0.9)  # noqa: E731
        _, _, optimizer = train(model, step_of(model), look, momentum)
        return [type(each["momentum_buffer"]) for each in optimizer.state.values()]

    for types in run_threads(2, work):
        assert set(types) == {torch.Tensor}


def test_a_scaler_finds_on_all_workers_what_one_has():
    def work(group):
        model = WAYS["tensor"](network(), group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        scaler.scale(model(INPUTS).sum()).backward()
        if group.rank == 1:
            model[0].weight.grad[0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    assert run_threads(2, work) == [4.0, 4.0]


def test_a_norm_of_some_gradients_of_a_stage_is_refused():
    """The other stage has none of them, and would not take part."""

    def work(group):
        pipe = WAYS["pipeline"](network(), group)
        pipe.step(INPUTS, LABELS)
        utils.clip_grad_norm_([param for param in pipe.parameters() if param.shape == (8, 6)], 1.0)
        pipe.step(INPUTS, LABELS)

    with pytest.raises(ConfigError, match="a norm of 1 of the 2 gradients of this stage"):
        run_threads(2, work)


def test_gradients_that_all_workers_have_are_plain():
    def work(group):
        model = WAYS["tensor"](network(), group)
        step_of(model)()
        return [isinstance(param.grad, PartGradient) for param in model.parameters()]

    # Weight and bias of the column cut, weight of the row cut; its bias and the last layer are whole.
    assert run_threads(2, work) == [[True, True, True, False, False, False]] * 2
