"""Gathered parameters: few units at a time, and the result of one machine for models of every build."""

import pytest
import torch
from strategy_cases import (
    BATCH,
    OPTIMIZERS,
    STRATEGIES,
    assert_equal,
    on_threads,
    replica,
    share,
    single,
    train,
)
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import shoal
from shoal.data.dataset import Batch
from shoal.errors import ConfigError, DivergedError, MismatchError

STEPS = 3
WIDTH = 6


class Tied(nn.Module):
    """The last layer's weights are the first one's."""

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, inputs):
        return self.last(self.middle(self.first(inputs).tanh()).tanh())


class UsesItsOwn(nn.Module):
    """Uses parameters of its own before and after other modules."""

    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([torch.ones(6), torch.ones(6)])
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

    def forward(self, inputs):
        x = inputs * self.scales[0]
        for block in self.blocks:
            x = block(x).relu_()  # in place: changes a module's output
        return x * self.scales[1]


class Twice(nn.Module):
    """Calls one module twice, and returns a tuple from inside."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = Pair(), nn.Linear(6, 6)

    def forward(self, inputs):
        x, y = self.cell(inputs)
        x, y = self.cell(x + y)
        return self.head(x - y)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, inputs):
        return self.left(inputs).tanh(), self.right(inputs).tanh()


class Checkpointed(nn.Module):
    """Computes activations again in backward."""

    def __init__(self, reentrant):
        super().__init__()
        self.blocks = nn.ModuleList([Pair() for _ in range(3)])
        self.reentrant = reentrant

    def forward(self, inputs):
        x = inputs.requires_grad_()
        for block in self.blocks:
            x = sum(checkpoint(block, x, use_reentrant=self.reentrant))
        return x


class Attends(nn.Module):
    """Torch's attention uses the weights of a module inside it without calling that."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(3, 1, batch_first=True), nn.Linear(6, 6)

    def forward(self, inputs):
        x = inputs.view(-1, 2, 3)
        return self.head(self.attention(x, x, x, need_weights=False)[0].flatten(1))


MODELS = {
    "tied": Tied,
    "uses its own": UsesItsOwn,
    "twice": Twice,
    "checkpointed": lambda: Checkpointed(reentrant=False),
    "checkpointed, reentrant": lambda: Checkpointed(reentrant=True),
    "attends": Attends,
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_every_build_equal_one_machine(name):
    def work(group):
        mine = replica(OPTIMIZERS["sgd"], seed=group.rank, network=MODELS[name])
        return train(STRATEGIES["zero 3, gathered"](mine, group), (7, 5), parts=2, steps=STEPS)

    expected = train(single(replica(OPTIMIZERS["sgd"], network=MODELS[name])), (BATCH,), parts=2, steps=STEPS)
    with pytest.warns(UserWarning, match="initial parameters differed"):
        members = on_threads(2, work)
    assert_equal(members, expected)


def deep():
    return nn.Sequential(*(nn.Linear(6, 6) for _ in range(8)))


@pytest.mark.parametrize("along_tree", [False, True])
def test_one_unit_is_here_at_a_time_and_none_after_a_step(along_tree):
    seen = []

    def work(group):
        mine = replica(OPTIMIZERS["adam"], network=deep, along_tree=along_tree)
        strategy = STRATEGIES["zero 3, gathered"](mine, group)
        params = list(mine.model.parameters())

        def count(*_):
            seen.append(sum(param.untyped_storage().nbytes() > 1000 for param in params) / 2)

        for layer in mine.model:
            layer.register_forward_hook(count)
            layer.weight.register_hook(count)
        for step in range(2):
            strategy.step(share(step, 6 * group.rank, 6, parts=2), 0.1)
            assert all(param.isnan().all() for param in params), "nothing is here between steps"
        strategy.evaluate(Batch(torch.randn(6, 6).double(), torch.zeros(6, dtype=torch.int64), 6))
        assert all(param.isnan().all() for param in params), "nothing is here after an evaluation"

    on_threads(2, work)
    assert set(seen) == {1}


def test_the_next_unit_is_gathered_while_a_layer_computes():
    def work(group):
        mine = replica(OPTIMIZERS["adam"], network=deep)
        strategy = STRATEGIES["zero 3, gathered"](mine, group)
        strategy.step(share(0, 6 * group.rank, 6), 0.1)  # the first step shows the order
        events, gather = [], group.all_gather

        def noted(*tensors):
            events.append("gather")
            return gather(*tensors)

        group.all_gather = noted
        for layer in mine.model:
            layer.register_forward_hook(lambda *_: events.append("forward"))
            layer.weight.register_post_accumulate_grad_hook(lambda _: events.append("backward"))
        strategy.step(share(1, 6 * group.rank, 6), 0.1)
        return events

    for events in on_threads(2, work):
        forward = ["gather", *["gather", "forward"] * 7, "forward"]
        # The last unit stays for backward, and in the end nothing is left to gather.
        assert events == [*forward, *["gather", "backward"] * 7, "backward"]


@pytest.mark.parametrize("size", [2, 3])
def test_an_evaluation_is_divided_and_equal(size):
    reference = single(replica(OPTIMIZERS["adam"], network=deep))
    inputs, labels = torch.randn(4, 6).double(), torch.tensor([0, 1, 2, 3])
    wanted = reference.evaluate(Batch(inputs, labels, 4))

    def work(group):
        strategy = STRATEGIES["zero 3, gathered"](replica(OPTIMIZERS["adam"], network=deep), group)
        assert strategy.copies.size == 1, "every worker sees every batch"
        return strategy.evaluate(Batch(inputs, labels, 4))

    for sums in on_threads(size, work):
        assert sums.loss.item() == pytest.approx(wanted.loss.item(), rel=1e-12)
        assert (sums.correct, sums.predictions, sums.samples) == (wanted.correct, 4, 4)


class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, inputs):
        return self.right(inputs) if inputs[0, 0] > 100 else self.left(inputs)


def test_workers_that_take_different_ways_get_an_error_and_not_other_weights():
    def work(group):
        strategy = STRATEGIES["zero 3, gathered"](replica(OPTIMIZERS["adam"], network=Forked), group)
        part = share(0, 6 * group.rank, 6)
        if group.rank == 1:
            part.parts[0].inputs[:, 0] = 1000.0
        strategy.step(part, 0.1)

    with pytest.raises(MismatchError, match="all_gather"):
        on_threads(2, work)


class UsesAnothers(nn.Module):
    """Uses weights of another module without calling that."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, inputs):
        return F.linear(self.second(self.first(inputs)), self.first.weight)


def test_weights_that_are_not_here_never_reach_an_update():
    def work(group):
        strategy = STRATEGIES["zero 3, gathered"](replica(OPTIMIZERS["adam"], network=UsesAnothers), group)
        with pytest.raises(DivergedError):
            strategy.step(share(0, 6 * group.rank, 6), 0.1)
        return all(piece.tensor.isfinite().all() for piece in strategy.pieces())

    assert on_threads(2, work) == [True, True]


class ReadsUncalled(nn.Module):
    """Uses the weights of a module without calling it, as some models of transformers do."""

    def __init__(self):
        super().__init__()
        self.called, self.read = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, inputs):
        return F.linear(self.called(inputs), self.read.weight, self.read.bias)


def test_weights_that_are_used_without_a_call_are_named_or_in_one_unit_with_their_user():
    def work(group, unit_mib):
        group.maps_memory = False
        model = ReadsUncalled()
        sharded = shoal.zero(
            model, lambda params: torch.optim.SGD(params, lr=0.1), 3, group, unit_mib=unit_mib
        )
        model(torch.ones(2, 6)).sum().backward()
        sharded.step()
        return sharded.model_state_dict()

    with pytest.raises(ConfigError, match=r"'read\.bias' is used without a call of its module 'read'"):
        on_threads(2, lambda group: work(group, unit_mib=1e-4))
    weights = on_threads(2, lambda group: work(group, unit_mib=1.0))[0]
    assert all(tensor.isfinite().all() for tensor in weights.values())
