"""State of exchanges: it follows parameters when buckets are planned again, and it is saved and loaded."""

import pytest
import torch

from shoal.comm.group import Finished
from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.config.sections.values import Custom
from shoal.strategies.buckets.bucket import Bucket, Region
from shoal.strategies.buckets.plan import Memory
from shoal.strategies.buckets.reducer import Reducer, ReducerOptions
from shoal.strategies.exchange.build import Staged
from shoal.strategies.exchange.exchange import AllReduce, Exchange, ParameterState
from shoal.strategies.exchange.user_exchange import load_user_exchange
from shoal.strategies.strategy import TrainingClock

SHAPES = {"a": (3,), "b": (2, 4), "c": (5,), "d": (4, 2)}


class Quarters(Exchange):
    """Sends multiples of 1/4 only; what it rounds off is added to the next step's gradients (error feedback)."""

    def __init__(self):
        self.residuals = ParameterState()
        self.keys = []

    def __call__(self, group, bucket):
        self.keys.append(bucket.key)
        residual = self.residuals.flat(bucket)
        whole = bucket.flat + residual
        torch.trunc(whole * 4, out=bucket.flat).div_(4)
        torch.sub(whole, bucket.flat, out=residual)
        group.all_reduce(bucket.flat).wait()
        return Finished()

    def pieces(self):
        return self.residuals.pieces()

    def load(self, pieces):
        self.residuals.load(pieces)


def gradients(step, rank):
    draw = torch.Generator().manual_seed(100 * step + rank)
    return {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in SHAPES.items()}


def run(group, exchange, steps, most_bytes=100):
    """Aggregates of these steps. Gradients become final in another order than that of the first plan."""
    group.overlaps = True
    params = {
        name: torch.zeros(shape, dtype=torch.float64, requires_grad=True) for name, shape in SHAPES.items()
    }
    reducer = Reducer(
        group,
        params,
        lambda param, callback: param.register_post_accumulate_grad_hook(callback).remove,
        lambda bucket: exchange(group, bucket),
        ReducerOptions(first_bytes=20, most_bytes=most_bytes),
    )
    aggregates = []
    for step in steps:
        for param in params.values():
            param.grad = None
        grads = gradients(step, group.rank)
        terms = [(params[name] * grads[name]).sum() for name in reversed(params)]
        reducer.prepare()
        sum(terms).backward()
        reducer.complete()
        reducer.wait()
        aggregates.append({name: param.grad.clone() for name, param in params.items()})
    return aggregates


def total(several, name):
    return sum(one[name] for one in several)


def test_error_feedback_survives_another_plan():
    """Nothing is lost: what was exchanged and what is still owed add up to all gradients."""

    def work(group):
        exchange = Quarters()
        return run(group, exchange, range(4)), exchange.pieces(), exchange.keys

    results = run_threads(2, work)
    keys = results[0][2]
    assert set(keys[-3:]) - set(keys[:3]), "the second plan has other buckets"
    for name in SHAPES:
        exchanged = total(results[0][0], name)
        owed = total([pieces for _, pieces, _ in results], name)
        wanted = total([gradients(step, rank) for step in range(4) for rank in range(2)], name)
        torch.testing.assert_close(exchanged + owed, wanted, rtol=0, atol=1e-12)
        assert owed.abs().max() > 0.01


def test_a_resumed_exchange_continues_where_the_saved_one_was():
    """Also with buckets of another size: the pieces are named after parameters."""

    def work(group):
        straight = run(group, Quarters(), range(4))[2:]
        saved = Quarters()
        run(group, saved, range(2))
        pieces = {name: piece.clone() for name, piece in saved.pieces().items()}
        resumed = Quarters()
        resumed.load(pieces)
        return straight, run(group, resumed, range(2, 4), most_bytes=64), list(pieces)

    for straight, resumed, names in run_threads(2, work):
        assert sorted(names) == list(SHAPES)
        for wanted, found in zip(straight, resumed, strict=True):
            assert all(torch.equal(wanted[name], found[name]) for name in SHAPES)


def test_a_key_names_the_parameters_and_their_order():
    def bucket(*names):
        flat = torch.zeros(2 * len(names))
        return Bucket(flat, {name: Region(2 * place, (2,), (1,)) for place, name in enumerate(names)})

    assert bucket("a", "b").key == bucket("a", "b").key
    assert len({bucket(*names).key for names in (("a", "b"), ("b", "a"), ("a", "b", "c"), ("a",))}) == 4


def test_state_of_a_bucket_that_a_plan_has_broken_up_is_not_used_again():
    (group,) = ThreadGroup.world(1)
    memory = Memory(group, {name: torch.zeros(shape) for name, shape in SHAPES.items()})
    state = ParameterState()
    (whole,) = memory.cut()
    state.flat(whole).fill_(1)
    for small in memory.cut(None, 1, 1):
        state.flat(small).add_(1)
    assert state.flat(whole).unique().tolist() == [2]


def test_buckets_leave_the_piggyback_out_of_their_state():
    (group,) = ThreadGroup.world(1)
    (bucket,) = Memory(group, {"a": torch.zeros(3)}, num_piggyback=4).cut()
    assert (bucket.flat.numel(), bucket.gradients.numel(), bucket.piggyback.numel()) == (7, 3, 4)
    assert ParameterState().flat(bucket).numel() == 3


def test_stages_keep_their_states_apart():
    first, second = Quarters(), Quarters()
    staged = Staged([(0.0, AllReduce()), (0.2, first), (0.5, second)], TrainingClock(6, 10))
    (group,) = ThreadGroup.world(1)
    staged(group, Bucket.of("a", torch.tensor([0.3, 1.0])))
    assert list(staged.pieces()) == ["2.a"]
    staged.load({"1.a": torch.tensor([7.0]), "2.a": torch.tensor([8.0])})
    assert (first.pieces()["a"].item(), second.pieces()["a"].item()) == (7, 8)
    assert AllReduce().pieces() == {}


def test_a_spare_becomes_the_state_only_when_used():
    bucket, state = Bucket.of("fc.bias", torch.zeros(2)), ParameterState()
    state.flat(bucket).fill_(1)
    state.spare(bucket).fill_(2)
    assert state.pieces()["fc.bias"].tolist() == [1, 1]
    state.use_spare(bucket)
    assert state.pieces()["fc.bias"].tolist() == state.flat(bucket).tolist() == [2, 2]
    assert state.spare(bucket).tolist() == [1, 1], "the same two memories take turns"


MODULE = """
class Counting:
    def __init__(self):
        self.calls = {}
    def __call__(self, group, bucket):
        self.calls[bucket.key] = self.calls.get(bucket.key, 0) + bucket.flat.clone()
        return group.all_reduce(bucket.flat)
    def pieces(self):
        return self.calls
    def load(self, pieces):
        self.calls = dict(pieces)
"""


@pytest.fixture
def counting(tmp_path, monkeypatch):
    (tmp_path / "stateful_exchange.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return lambda: load_user_exchange(Custom(name="stateful_exchange:Counting"))


def test_a_users_exchange_with_state_receives_the_bucket(counting):
    (group,) = ThreadGroup.world(1)
    exchange, other = counting(), counting()
    exchange(group, Bucket.of("fc.bias", torch.tensor([2.0]))).wait()
    other.load(exchange.pieces())
    other(group, Bucket.of("fc.bias", torch.tensor([3.0]))).wait()
    assert {key: value.item() for key, value in other.pieces().items()} == {"fc.bias": 5}
