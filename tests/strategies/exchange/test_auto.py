"""`compressed:auto`: one choice for all workers, the same bits as its codec, state in checkpoints."""

import pytest
import torch

from shoal.comm.threads.group import run_threads
from shoal.config.sections.compression import CompressedConfig
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.auto import FIRST_STEPS, Auto
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import TrainingClock

STEPS = 5


def gradient(rank, step):
    return torch.randn(30, 20, generator=torch.Generator().manual_seed(100 * step + rank))


def auto(clock, *candidates):
    return Auto(CompressedConfig(codec="auto", candidates=candidates), clock)


def exchanged(exchange, group, clock, steps, spoil=()):
    """The aggregates of some steps; each step has two buckets."""
    found = []
    for clock.step in steps:
        whole = gradient(group.rank, clock.step)
        if (group.rank, clock.step) in spoil:
            whole[0] = torch.nan
        parts = [whole[:20].clone(), whole[20:].clone()]
        works = [exchange(group, Bucket.of(f"param{n}", part)) for n, part in enumerate(parts)]
        for work in works:
            work.wait()
        found.append(torch.cat(parts))
    return found


def run(workers, work):
    def alone(group):
        clock = TrainingClock(total_steps=STEPS)
        return work(group, clock)

    return run_threads(workers, alone)


def test_all_workers_make_the_same_choice_from_the_same_numbers():
    def work(group, clock):
        choices = []
        exchange = auto(clock)
        exchange.on_choice = choices.append
        return exchanged(exchange, group, clock, range(STEPS)), exchange.chosen, choices

    members = run(3, work)
    aggregates, chosen, (choice,) = members[0]
    names = [candidate.name for candidate in choice.candidates]
    assert names == ["none", "fp16", "int8", "topk", "powersgd"]
    assert chosen == choice.chosen.name
    dense, low_rank = choice.candidates[0], choice.candidates[-1]
    assert dense.sent_bytes(3) == 2 * 2 / 3 * 4 * 600 > low_rank.sent_bytes(3) > 0
    assert {message.operation for message in choice.candidates[2].messages} == {"all_gather"}
    for others, its_choice, (its,) in members[1:]:
        assert its_choice == chosen
        assert its.record() == choice.record(), "decided from the same numbers"
        assert all(map(torch.equal, aggregates, others)), "the same bits on all workers"


@pytest.mark.parametrize("codec", ["topk", "powersgd", "int8"])
def test_after_the_first_steps_it_is_its_codec_to_the_bit(codec):
    def by_auto(group, clock):
        exchange = auto(clock, codec)
        return exchanged(exchange, group, clock, range(STEPS)), exchange.chosen

    def by_codec(group, clock):
        first = auto(clock, "none")
        sums = exchanged(first, group, clock, range(FIRST_STEPS))
        rest = Compressed(CompressedConfig(codec=codec), clock)
        return sums + exchanged(rest, group, clock, range(FIRST_STEPS, STEPS))

    for (ours, chosen), expected in zip(run(2, by_auto), run(2, by_codec), strict=True):
        assert chosen == codec
        assert all(map(torch.equal, ours, expected))
    total = gradient(0, 0) + gradient(1, 0)
    assert torch.equal(expected[0], total), "the first steps are not compressed"


@pytest.mark.parametrize("stop", range(1, STEPS))
def test_a_restored_run_goes_on_with_the_same_codec_and_bits(stop):
    def whole(group, clock):
        return exchanged(auto(clock, "topk"), group, clock, range(STEPS))

    def halves(group, clock):
        first, second = auto(clock, "topk"), auto(clock, "topk")
        found = exchanged(first, group, clock, range(stop))
        second.load({name: piece.clone() for name, piece in first.pieces().items()})
        return found + exchanged(second, group, clock, range(stop, STEPS))

    for straight, restored in zip(run(2, whole), run(2, halves), strict=True):
        assert all(map(torch.equal, straight, restored))


def test_a_choice_is_not_made_again_and_a_new_worker_takes_it_over():
    def first(group, clock):
        exchange = auto(clock, "topk:0.5")
        exchanged(exchange, group, clock, range(STEPS))
        return {name: piece.clone() for name, piece in exchange.pieces().items()}

    saved = run(2, first)

    def resumed(group, clock):
        exchange = auto(clock, "none", "topk:0.5", "fp16")
        exchange.on_choice = lambda choice: pytest.fail("it chose again")
        if group.rank < len(saved):
            exchange.load(saved[group.rank])
        return exchanged(exchange, group, clock, range(STEPS, STEPS + 2)), exchange.chosen

    members = run(3, resumed)
    assert {chosen for _, chosen in members} == {"topk:0.5"}
    assert all(map(torch.equal, members[0][0], members[2][0]))

    def other_candidates(group, clock):
        exchange = auto(clock, "int8")
        exchange.load(saved[group.rank])
        exchanged(exchange, group, clock, range(STEPS, STEPS + 2))
        return exchange.chosen

    assert run(2, other_candidates) == ["int8", "int8"]


def test_a_step_with_bad_numbers_is_not_measured():
    def work(group, clock):
        exchange, seen = auto(clock), []
        exchange.on_choice = lambda choice: seen.append(clock.step)
        found = exchanged(exchange, group, clock, range(STEPS), spoil={(1, FIRST_STEPS - 1)})
        return found[FIRST_STEPS - 1], seen

    for bad, seen in run(2, work):
        assert bad[0].isnan().all()
        assert seen == [FIRST_STEPS + 1]


def test_codecs_that_cannot_encode_a_dtype_are_no_candidates():
    def work(group, clock):
        exchange, names = auto(clock), []
        exchange.on_choice = lambda choice: names.extend(each.name for each in choice.candidates)
        for clock.step in range(FIRST_STEPS + 1):
            exchange(group, Bucket.of("param", torch.ones(8, 8, dtype=torch.bfloat16))).wait()
        return names

    assert run(2, work) == [["none", "fp16"]] * 2


def test_layers_keep_their_rules():
    def work(group, clock):
        config = CompressedConfig(codec="auto", candidates=("none", "topk:0.01"), layers=("param1=none",))
        exchange = Auto(config, clock)
        return exchanged(exchange, group, clock, range(STEPS))[-1]

    for found in run(2, work):
        total = gradient(0, STEPS - 1) + gradient(1, STEPS - 1)
        assert torch.allclose(found[20:], total[20:])
