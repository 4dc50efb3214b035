"""`dp` step by step: who gets which samples, who has the optimizer, what passes rank 0. Equality: see contracts."""

import pytest
import torch
from strategy_cases import copy_of, made, single
from torch import nn

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.config.read import read
from shoal.config.sections.optimizer import AdamConfig, SgdConfig
from shoal.config.sections.sync import DpConfig
from shoal.data.dataset import Batch
from shoal.errors import ConfigError, DivergedError
from shoal.strategies.dp import Dp
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.strategy import Share

LR = 0.1


def replica_of(model, optimizer=None, **others):
    return copy_of(model, optimizer or SgdConfig(lr=LR), **others)


def dp_of(model, group, optimizer=None, on_nonfinite="stop", **others):
    return made(Dp, DpConfig(), replica_of(model, optimizer, **others), group, on_nonfinite=on_nonfinite)


def numbered(count, features=3):
    """Samples whose first feature is their number."""
    inputs = torch.randn(count, features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs[:, 0] = torch.arange(count)
    return Batch(inputs, torch.arange(count) % 2, count)


def share_of(*batches):
    count = sum(batch.num_samples for batch in batches)
    return Share(batches, count, count)


class Recorder(nn.Module):
    """A linear model that notes the numbers of the samples it is given."""

    def __init__(self, seed=0):
        super().__init__()
        self.linear = nn.Linear(3, 2, dtype=torch.float64)
        with torch.no_grad():
            draw = torch.Generator().manual_seed(seed)
            for param in self.parameters():
                param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
        self.seen = []

    def forward(self, inputs):
        self.seen.append(inputs[:, 0].int().tolist())
        return self.linear(inputs)


@pytest.mark.parametrize(
    ("samples", "workers", "expected"),
    [
        (6, 2, [[[0, 1, 2]], [[3, 4, 5]]]),
        (7, 3, [[[0, 1, 2]], [[3, 4, 5]], [[6]]]),
        (2, 4, [[[0]], [[1]], [], []]),
        (1, 1, [[[0]]]),
    ],
)
def test_each_worker_runs_the_model_on_its_stretch_and_on_nothing_else(samples, workers, expected):
    def work(group):
        model = Recorder()
        dp_of(model, group).step(share_of(numbered(samples)), LR)
        return model.seen

    assert run_threads(workers, work) == expected


def test_only_rank_0_makes_batches():
    def forbidden():
        raise AssertionError("a worker that has no data was asked for some")
        yield

    def work(group):
        whole = numbered(5)
        parts = iter([whole]) if group.rank == 0 else forbidden()
        return dp_of(Recorder(), group).step(Share(parts, 5, 5), LR).loss.item()

    expected = single(replica_of(Recorder())).step(share_of(numbered(5)), LR).loss.item()
    assert run_threads(3, work) == pytest.approx([expected] * 3, rel=1e-12)


def test_a_batch_in_parts_is_scattered_part_by_part():
    whole = numbered(9)
    parts = [Batch(whole.inputs[cut], whole.labels[cut], len(cut)) for cut in torch.arange(9).split(4)]

    def work(group):
        model = Recorder()
        strategy = dp_of(model, group)
        strategy.step(share_of(*parts), LR)
        return model.seen, by_name(strategy.pieces())

    (first, pieces), (second, _) = run_threads(2, work)
    assert (first, second) == ([[0, 1], [4, 5], [8]], [[2, 3], [6, 7]])
    alone = single(replica_of(Recorder()))
    alone.step(share_of(whole), LR)
    for name, piece in by_name(alone.pieces()).items():
        assert torch.allclose(pieces[name], piece, rtol=1e-12)


def test_rank_0_alone_has_an_optimizers_state_and_all_have_its_weights():
    def work(group):
        strategy = dp_of(Recorder(seed=group.rank), group, AdamConfig())
        strategy.step(share_of(numbered(6)), LR)
        return {name: piece.clone() for name, piece in by_name(strategy.pieces()).items()}

    first, second = run_threads(2, work)
    assert {name.partition(".")[0] for name in first} == {"model", "optim"}
    assert second.keys() == {name for name in first if name.startswith("model.")}
    assert all(torch.equal(second[name], first[name]) for name in second)


def test_it_takes_up_the_state_of_one_machine_and_goes_on():
    alone = single(replica_of(Recorder(), AdamConfig()))
    alone.step(share_of(numbered(6)), LR)
    state = {name: piece.clone() for name, piece in by_name(alone.pieces()).items()}
    alone.step(share_of(numbered(4)), LR)

    def work(group):
        strategy = dp_of(Recorder(seed=9), group, AdamConfig())
        strategy.load(state)
        strategy.step(share_of(numbered(4)), LR)
        return by_name(strategy.pieces())

    pieces = run_threads(3, work)[0]
    assert pieces.keys() == by_name(alone.pieces()).keys()
    for name, piece in by_name(alone.pieces()).items():
        assert torch.allclose(pieces[name], piece, rtol=1e-12), name


def test_what_passes_rank_0_is_what_the_docstring_says():
    """8 samples on 4 workers: rank 0 sends three quarters of the inputs and of the outputs' gradients."""

    def work(group):
        group = traced(group)
        strategy = dp_of(Recorder(), group)
        group.totals.clear()
        strategy.step(share_of(numbered(8)), LR)
        return {name: total.num_bytes for name, total in group.totals.items()}

    first, second, *_ = run_threads(4, work)
    X, Y, P = 8 * 3 * 8, 8 * 2 * 8, (3 * 2 + 2) * 8
    headers, flags = 2 * 10 * 8, 2 * 8
    assert first["send"] == (X + Y) * 3 // 4
    assert first["recv"] == Y * 3 // 4
    assert (first["reduce"], second["reduce"]) == (0, P + flags)
    assert first["broadcast"] == P + headers


def test_of_batch_statistics_rank_0s_count_as_in_nn_data_parallel():
    inputs = numbered(8, features=4).inputs

    def model():
        return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)).double()

    start = {name: tensor.clone() for name, tensor in model().state_dict().items()}

    def work(group):
        mine = model()
        mine.load_state_dict(start)
        dp_of(mine, group).step(share_of(Batch(inputs, torch.zeros(8).long(), 8)), LR)
        return {name: buffer.clone() for name, buffer in mine.named_buffers()}

    alone = model()
    alone.load_state_dict(start)
    alone(inputs[:4])  # rank 0's stretch
    for buffers in run_threads(2, work):
        for name, buffer in alone.named_buffers():
            assert torch.equal(buffers[name], buffer), name


def test_tokens_are_scattered_too():
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 5, dtype=torch.float64)
            with torch.no_grad():
                self.embed.weight.copy_(torch.arange(25).view(5, 5) / 25)

        def forward(self, tokens):
            return self.embed(tokens)

    tokens = torch.arange(12).view(3, 4) % 5
    batch = Batch(tokens, (tokens + 1) % 5, 3)
    alone = single(replica_of(Text()))
    alone.step(share_of(batch), LR)

    def work(group):
        strategy = dp_of(Text(), group)
        strategy.step(share_of(batch), LR)
        return by_name(strategy.pieces())["model.embed.weight"]

    for weight in run_threads(2, work):
        assert torch.allclose(weight, by_name(alone.pieces())["model.embed.weight"], rtol=1e-12)


def test_bf16_is_computed_and_moved_in_bf16_on_every_worker():
    class Kinds(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, inputs):
            outputs = self.linear(inputs)
            self.kind = outputs.dtype
            return outputs

    batch = numbered(6)
    batch = batch._replace(inputs=batch.inputs.float())

    def work(group):
        group, model = traced(group), Kinds()
        strategy = dp_of(model, group, precision="bf16")
        strategy.step(share_of(batch), LR)
        return model.kind, model.linear.weight.dtype, group.totals["recv"].num_bytes

    inputs, outputs = 3 * 3 * 4, 3 * 2 * 2  # bytes of a stretch of three samples
    assert run_threads(2, work) == [
        (torch.bfloat16, torch.float32, outputs),
        (torch.bfloat16, torch.float32, inputs + outputs),
    ]


def test_a_parameter_that_no_sample_reaches_is_left_alone():
    class Half(Recorder):
        def __init__(self):
            super().__init__()
            self.unused = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def work(group):
        model = Half()
        dp_of(model, group, SgdConfig(lr=LR, weight_decay=0.5)).step(share_of(numbered(4)), LR)
        return model.unused.grad, model.unused.tolist()

    assert run_threads(2, work) == [(None, [1.0, 1.0, 1.0])] * 2


def test_a_frozen_parameter_is_rank_0s_everywhere_and_stays():
    def work(group):
        model = Recorder(seed=group.rank)
        model.linear.weight.requires_grad_(False)
        dp_of(model, group).step(share_of(numbered(4)), LR)
        return model.linear.weight.tolist(), model.linear.bias.tolist()

    start = Recorder(seed=0).linear
    (first, bias), second = run_threads(2, work)
    assert (first, bias) == second
    assert first == start.weight.tolist()
    assert bias != start.bias.tolist()


def with_nan_in_last():
    batch = numbered(6)
    batch.inputs[5, 1] = torch.nan
    return batch


def test_a_gradient_that_is_no_number_is_named_and_never_reaches_the_weights():
    def work(group):
        model = Recorder()
        strategy = dp_of(model, group)
        before = model.linear.weight.detach().clone()
        with pytest.raises(DivergedError, match=r"rank 1's gradient is nan.* stopped before it reached"):
            strategy.step(share_of(with_nan_in_last()), LR)
        return torch.equal(model.linear.weight, before)

    assert run_threads(2, work) == [True, True]


@pytest.mark.filterwarnings("ignore:the norm of")
def test_or_the_step_is_left_out_and_the_next_one_is_as_good_as_ever():
    alone = single(replica_of(Recorder()))
    alone.step(share_of(numbered(4)), LR)

    def work(group):
        strategy = dp_of(Recorder(), group, on_nonfinite="skip")
        strategy.step(share_of(with_nan_in_last()), LR)
        strategy.step(share_of(numbered(4)), LR)
        return by_name(strategy.pieces())["model.linear.weight"]

    for weight in run_threads(2, work):
        assert torch.allclose(weight, by_name(alone.pieces())["model.linear.weight"], rtol=1e-12)


def test_what_spoils_one_workers_computation_spoils_its_stretch_alone():
    """A fault multiplies the scale of gradients; under dp too, on the worker that has it and on no other."""

    def flipped_on_rank_1(group):
        def conditions(gradients):
            factor = -1.0 if group.rank == 1 else 1.0
            return lambda batch, scale: gradients(batch, scale * factor)

        return conditions

    def work(group):
        model = Recorder()
        before = model.linear.weight.detach().clone()
        strategy = dp_of(model, group, conditions=flipped_on_rank_1(group))
        strategy.step(share_of(numbered(6)), LR)
        return (before - model.linear.weight.detach()) / LR

    model, batch = Recorder(), numbered(6)
    losses = nn.functional.cross_entropy(model(batch.inputs), batch.labels, reduction="none")
    (losses[:3].sum() - losses[3:].sum()).div(6).backward()
    for gradient in run_threads(2, work):
        assert torch.allclose(gradient, model.linear.weight.grad, rtol=1e-9)


@pytest.mark.parametrize("engine", ["tape", "static"])
def test_our_own_engines_have_no_graph_to_cut(engine):
    with pytest.raises(ConfigError, match=f"strategy dp .* --engine {engine}"):
        read(None, ["--strategy", "dp", "--workers", "2", "--engine", engine])
