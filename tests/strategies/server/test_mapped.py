"""Workers that update the weights of the server themselves: what they compute, record, save and refuse."""

import pytest
import torch
from server_cases import NO_PROGRESS, history_of, members, strategy_of
from strategy_cases import (
    OPTIMIZERS,
    assert_equal,
    on_threads,
    one_machine,
    rate,
    replica,
    share_of,
    state_of,
)

from shoal.comm.traced import traced
from shoal.errors import DivergedError
from shoal.strategies.server.ledger import CAPACITY, Journal, Push, VersionedUpdate
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.turns import new_words
from shoal.strategies.strategy import Pause, Serving, Share, Turn
from shoal.training import checkpoint
from shoal.training.progress import Progress

pytestmark = pytest.mark.filterwarnings(
    "ignore:the workers' initial parameters differed", "ignore:the norm of rank"
)
ASP = ServerConfig(mode="asp")
SSP = ServerConfig(mode="ssp", staleness=1)


@pytest.mark.parametrize("config", [ASP, SSP], ids=["asp", "ssp"])
@pytest.mark.parametrize(("optimizer", "clip_norm"), [("sgd", None), ("adam", None), ("adam", 0.5)])
def test_one_worker_is_one_machine(config, optimizer, clip_norm):
    found = members(
        lambda rank: replica(OPTIMIZERS[optimizer], seed=rank, clip_norm=clip_norm), config, (12,)
    )
    assert_equal(found, one_machine(optimizer, clip_norm))


def in_turns(config, maps_memory, optimizer="adam", steps=6, shares=(7, 5)):
    """Two workers whose pushes alternate, so that each is one update old; the weights, and the server's events."""
    events = []

    def work(world):
        world.maps_memory = maps_memory
        strategy = strategy_of(world, config, replica(OPTIMIZERS[optimizer]))
        if strategy.serves:
            strategy.serve(Serving(record=events.append))
            return None
        for step in range(steps):
            for turn in range(2):
                if turn == strategy.copies.rank:
                    strategy.step(share_of(strategy, step, shares), rate(step))
                strategy.copies.barrier().wait()
        strategy.consolidate()
        strategy.pause(Pause(NO_PROGRESS, is_end=True))
        return state_of(strategy)

    return on_threads(3, work)[0], events


@pytest.mark.parametrize("options", [{}, {"damping": True}, {"compensation": 0.5}], ids=str)
def test_it_does_and_records_what_a_server_does_by_messages(options):
    (in_place, here), (by_messages, there) = (
        in_turns(ServerConfig(mode="asp", **options), maps_memory) for maps_memory in (True, False)
    )
    for name, tensor in by_messages.items():
        assert torch.allclose(in_place[name], tensor, rtol=1e-12, atol=1e-15)
    assert here == there
    assert {event["staleness"] for event in here} == {0, 1}


def test_a_worker_without_samples_pushes_what_it_would_push_by_messages():
    (in_place, here), (by_messages, there) = (
        in_turns(ASP, maps_memory, optimizer="sgd", shares=(12, 0)) for maps_memory in (True, False)
    )
    for name, tensor in by_messages.items():
        assert torch.allclose(in_place[name], tensor, rtol=1e-12, atol=1e-15)
    assert here == there


def test_an_update_is_no_message():
    sent = []

    def work(world):
        group = traced(world)
        history_of(strategy_of(group, ASP, replica(OPTIMIZERS["sgd"])), (7, 5), steps=3)
        sent.append(group.totals["send"].calls if "send" in group.totals else 0)

    on_threads(3, work)
    assert sorted(sent) == [0, 0, 2 * 3], "rank 0 pauses the server, which then saves"


def test_no_update_of_ssp_begins_too_early():
    events, steps, bound = [], 8, 1

    def work(world):
        strategy = strategy_of(world, SSP, replica(OPTIMIZERS["gd"]))
        if strategy.serves:
            strategy.serve(Serving(record=events.append))
            return
        for step in range(steps):
            strategy.step(share_of(strategy, step, (4, 4, 4)), rate(step))
        strategy.pause(Pause(NO_PROGRESS, is_end=True))

    on_threads(4, work)
    assert len(events) == 3 * steps
    for event in events:
        finished = [0] * 3
        for earlier in events[: event["from_version"]]:
            finished[earlier["rank"]] += 1
        assert min(finished) >= event["step"] - bound


def test_workers_take_every_turn_once():
    events = []

    def work(world):
        strategy = strategy_of(world, ASP, replica(OPTIMIZERS["gd"]))
        if strategy.serves:
            strategy.serve(Serving(record=events.append))
            return None
        while isinstance(turn := strategy.next_turn(0, 5), Turn):
            strategy.step(share_of(strategy, turn.step, (4, 4, 4)), rate(turn.step))
        strategy.consolidate()
        strategy.pause(Pause(NO_PROGRESS, is_end=True))
        return turn, strategy.summary()["updates"]

    results = on_threads(4, work)[:3]
    assert {turn for turn, _ in results} == {(5, 0)}
    assert [updates for _, updates in results] == [15] * 3
    turns = sorted((event["step"], event["share"]) for event in events)
    assert turns == [(step, share) for step in range(5) for share in range(3)]


@pytest.mark.parametrize("config", [ASP, SSP], ids=["asp", "ssp"])
def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(tmp_path, config):
    def whole(world):
        return history_of(strategy_of(world, config, replica(OPTIMIZERS["adam"])), (12,))

    def cut(world):
        strategy = strategy_of(world, config, replica(OPTIMIZERS["adam"]))
        history_of(strategy, (12,), steps=4)
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=4), keep=1, group=world)
        resumed = strategy_of(world, config, replica(OPTIMIZERS["adam"], seed=3))
        resumed.load(checkpoint.latest(tmp_path).pieces())
        return history_of(resumed, (12,), first=4)

    for never_stopped, found in zip(on_threads(2, whole), on_threads(2, cut), strict=True):
        for (expected, *_), (state, *_) in zip(never_stopped[4:], found, strict=True):
            assert all(torch.equal(state[key], expected[key]) for key in expected)


@pytest.mark.parametrize("on_nonfinite", ["stop", "skip"])
def test_a_gradient_that_is_not_finite_does_not_reach_the_weights(on_nonfinite):
    events = []

    def work(world):
        strategy = strategy_of(world, ASP, replica(OPTIMIZERS["gd"]), on_nonfinite=on_nonfinite)
        if strategy.serves:
            strategy.serve(Serving(record=events.append))
            return True
        mine = share_of(strategy, 0, (6, 6))
        if strategy.copies.rank == 1:
            mine.parts[0].inputs[0, 0] = torch.nan
        if strategy.copies.rank == 1 and on_nonfinite == "stop":
            with pytest.raises(
                DivergedError, match=r"rank 1's gradient is nan .*before it reached the weights"
            ):
                strategy.step(mine, 0.1)
        elif strategy.copies.rank == 1:
            with pytest.warns(UserWarning, match="rank 1's gradient is nan.*: the step is left out"):
                strategy.step(mine, 0.1)
        else:
            strategy.step(mine, 0.1)
        strategy.consolidate()
        strategy.pause(Pause(NO_PROGRESS, is_end=True))
        return all(param.isfinite().all() for param in strategy._layout.params.values())

    assert on_threads(3, work) == [True] * 3
    skipped = [event["rank"] for event in events if event.get("skipped")]
    assert skipped == ([1] if on_nonfinite == "skip" else [])


def test_all_stop_after_the_same_step():
    def work(world):
        strategy, steps = strategy_of(world, SSP, replica(OPTIMIZERS["gd"])), 0
        if strategy.serves:
            strategy.serve(Serving())
            return None
        for step in range(100):
            mine = share_of(strategy, step % 10, (4, 4, 4))
            signal = 15 if strategy.copies.rank == 1 and step >= 3 else 0
            steps += 1
            if strategy.step(Share(mine.parts, 12, 4, signal), 0.01).stop_signal:
                break
        strategy.pause(Pause(NO_PROGRESS, is_end=True))
        return steps

    steps = on_threads(4, work)[:3]
    assert len(set(steps)) == 1
    assert 4 <= steps[0] <= 6


def update_of(version):
    return VersionedUpdate(version, (Push(0, version, version - 1, version - 1),), share=version % 2 - 1)


def test_the_server_reads_every_update_once_also_when_the_ring_is_reused():
    journal, found = Journal(new_words(Journal.num_words()), workers=3), []
    for version in range(3 * CAPACITY // 2):
        journal.write(update_of(version + 1), is_skipped=version % 3 == 0)
        if version % (CAPACITY // 3) == 0:
            found += journal.read()
    found += journal.read()
    assert found == [(update_of(version + 1), version % 3 == 0) for version in range(3 * CAPACITY // 2)]


def test_a_worker_waits_when_the_server_is_a_whole_ring_behind():
    journal, version = Journal(new_words(Journal.num_words()), workers=3), 0
    while journal.has_room():
        version += 1
        journal.write(update_of(version), is_skipped=False)
    assert CAPACITY - 3 < version <= CAPACITY
    journal.read()
    assert journal.has_room()
