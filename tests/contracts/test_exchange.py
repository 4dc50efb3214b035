"""One contract for all exchanges: ours keep it, and exchanges that are wrong on purpose are caught by it."""

import dataclasses
import threading
import time

import pytest
import torch

from shoal.comm.algorithms import ALGORITHMS, ring
from shoal.comm.reduction import Op
from shoal.config.sections.compression import CODEC_ROWS, CompressedConfig
from shoal.config.sections.exchange import AllReduceConfig, ByConfig, RobustConfig
from shoal.errors import ConfigError
from shoal.strategies.exchange import contract
from shoal.strategies.exchange.build import Staged
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.contract import CHECKS, examine
from shoal.strategies.exchange.exam import Subject, hard_rows, subject_of
from shoal.strategies.exchange.exchange import AllReduce, By
from shoal.strategies.exchange.rules import ROBUST, Robust, median
from shoal.strategies.exchange.user_exchange import UserExchange
from shoal.strategies.strategy import TrainingClock

STAGES = [(0.0, AllReduce()), (0.5, By(ring))]


def some_sizes(config, *sizes):
    """The subject of an exchange whose parts have tests of their own at every size."""
    subject = subject_of(config, sizes[-1])
    return dataclasses.replace(subject, sizes=[size for size in subject.sizes if size in sizes])


OURS = {
    "all_reduce": subject_of(AllReduceConfig(), 3),
    **{f"by:{name}": some_sizes(ByConfig(algorithm=name), 1, 3, 4) for name in ALGORITHMS},
    **{f"robust:{rule}": some_sizes(RobustConfig(rule=rule), 1, 3, 5) for rule in ROBUST},
    "robust:trimmed_mean, two bad": subject_of(RobustConfig(rule="trimmed_mean", bad=2), 6),
    **{f"compressed:{codec}": subject_of(CompressedConfig(codec=codec), 2) for codec in CODEC_ROWS},
    "compressed:auto": subject_of(CompressedConfig(codec="auto"), 3),
    "compressed:topk, neutral": subject_of(CompressedConfig(codec="topk", ratio=1.0), 3),
    "compressed:randomk, neutral": subject_of(CompressedConfig(codec="randomk", ratio=1.0), 3),
    "compressed:bf16, as precise as that": Subject(
        lambda size: Compressed(CompressedConfig(codec="bf16"), TrainingClock()),
        [1, 2, 3],
        precision=torch.bfloat16,
    ),
    "first stage": Subject(lambda size: Staged(STAGES, TrainingClock(4, 10)), [1, 3]),
    "second stage": Subject(lambda size: Staged(STAGES, TrainingClock(5, 10)), [1, 3]),
}
PUNCTUAL = {f"compressed:{codec}" for codec in CODEC_ROWS} - {
    f"compressed:{codec}" for codec in ("int8", "powersgd")
}
"""Codecs differ in the bytes of a message, not in when it moves: for two of them the checks wait for late writes."""


def problems(subject):
    return {verdict.name: verdict.problem for verdict in examine(subject) if verdict.problem}


@pytest.mark.parametrize("name", OURS)
def test_ours_keep_it(name, monkeypatch):
    if name in PUNCTUAL:
        monkeypatch.setattr(contract, "LATE_S", 0.0)
        monkeypatch.setattr(contract, "APART_S", 0.002)
    verdicts = list(examine(OURS[name]))
    assert [verdict for verdict in verdicts if verdict.problem] == []
    assert {"returns", "same bits", "group as before"} <= {verdict.name for verdict in verdicts}


def test_every_check_is_made_of_some_exchange_of_ours():
    made = {name for name, check in CHECKS.items() for subject in OURS.values() if check.applies(subject)}
    assert made == set(CHECKS)


def test_a_number_of_workers_that_a_rule_refuses_is_left_out():
    assert subject_of(RobustConfig(rule="krum"), 6).sizes == [5, 6]
    with pytest.raises(ConfigError, match="only with at least 5 workers"):
        subject_of(RobustConfig(rule="krum"), 4)


# Wrong on purpose.


def mean(group, bucket):
    return group.all_reduce(bucket, Op.AVERAGE)


def only_on_rank_0(group, bucket):
    return group.reduce(bucket, 0)


def aliasing(group, bucket):
    rows = [torch.zeros_like(bucket)] * group.size
    rows[group.rank].copy_(bucket)
    for rank, row in enumerate(rows):
        group.broadcast(row, rank).wait()
    bucket.copy_(torch.stack(rows).sum(0))


class Later:
    def __init__(self, bucket, result):
        threading.Timer(0.03, lambda: bucket.copy_(result)).start()

    def wait(self):
        pass

    def done(self):
        return True


def written_late(group, bucket):
    result = bucket.clone()
    group.all_reduce(result).wait()
    return Later(bucket, result)


def first_come_first_added(group, bucket):
    if group.rank:
        group.send(bucket, 0).wait()
        group.recv(bucket, 0).wait()
        return
    letters = {rank: torch.empty_like(bucket) for rank in range(1, group.size)}
    coming = {rank: group.recv(letter, rank) for rank, letter in letters.items()}
    while coming:
        for rank in [rank for rank, work in coming.items() if work.done()]:
            coming.pop(rank).wait()
            bucket += letters[rank]
        time.sleep(0.001)
    for rank in letters:
        group.send(bucket, rank).wait()


def more_precise_at_home(group, bucket):
    """Everyone keeps its own numbers as they are, and gets the others' in half precision."""
    others = torch.zeros_like(bucket)
    for rank in range(group.size):
        letter = bucket.to(torch.bfloat16)
        group.broadcast(letter, rank).wait()
        others += letter if rank != group.rank else 0
    bucket += others


def in_float16(group, bucket):
    small = bucket.half()
    group.all_reduce(small).wait()
    bucket.copy_(small)


def last_element_forgotten(group, bucket):
    even = bucket[: len(bucket) // 2 * 2]
    group.all_reduce(even).wait()


def one_buffer_for_all(buffers):
    def exchange(group, bucket):
        buffer = buffers.setdefault(group.rank, torch.zeros(2000, dtype=torch.float64))
        buffer[: len(bucket)] = bucket
        work = group.all_reduce(buffer[: len(bucket)])

        class Unpacking:
            def wait(self):
                work.wait()
                bucket.copy_(buffer[: len(bucket)])

            done = work.done

        return Unpacking()

    return exchange


def beyond_its_bucket(group, bucket):
    group.all_reduce(bucket).wait()
    if bucket.storage_offset():
        bucket.as_strided((1,), (1,), bucket.storage_offset() - 1).zero_()


def leaves_a_message(group, bucket):
    group.all_reduce(bucket).wait()
    if group.size > 1 and group.rank == 0:
        group.send(bucket, 1)


def rank_0_does_not_come(group, bucket):
    if group.rank:
        group.all_reduce(bucket).wait()


def raises_on_rank_2(group, bucket):
    group.barrier().wait()
    if group.rank == 2:
        raise ZeroDivisionError("division by zero")


WRONG = {
    mean: ("the sum", "2 workers, 257 × float32: element 0 is"),
    only_on_rank_0: ("same bits", "on rank 1, and"),
    aliasing: ("the sum", "2 workers"),
    written_late: ("over when waited", "right after wait()"),
    first_come_first_added: ("any arrival", "when the ranks arrive in the order"),
    more_precise_at_home: ("same bits", "on rank 1, and"),
    in_float16: ("the sum", "1 worker"),
    last_element_forgotten: ("same bits", "element 256 is"),
    one_buffer_for_all({}): ("several at once", "among others"),
    beyond_its_bucket: ("own memory only", "element 256 is 0 before rank 0's bucket"),
    leaves_a_message: ("group as before", "rank 0 sent 257 × torch.float32 to rank 1"),
    rank_0_does_not_come: ("returns", "rank 0 finished earlier, before all_reduce #1"),
    raises_on_rank_2: (
        "returns",
        "4 workers, 257 × float32: rank 2: exchange mine raised ZeroDivisionError",
    ),
}


@pytest.mark.parametrize("function", WRONG, ids=lambda function: function.__name__)
def test_wrong_exchanges_are_caught(function):
    check, words = WRONG[function]
    found = problems(Subject(lambda size: UserExchange("mine", function), [1, 2, 4]))
    assert words in found[check]
    # What it does wrong is said where it is wrong: a mean is no trouble with memory. (Bits that depend on the moment
    # may be wrong anywhere.)
    if function is not first_come_first_added:
        assert not found.keys() & {"own memory only", "group as before"} - {check}


def test_a_lossy_sum_passes_once_it_says_how_lossy_it_is():
    def in_bfloat16(group, bucket):
        small = bucket.to(torch.bfloat16)
        ring(group, small)
        bucket.copy_(small)

    assert problems(Subject(lambda size: UserExchange("mine", in_bfloat16), [3])).keys() == {"the sum"}
    assert not problems(
        Subject(lambda size: UserExchange("mine", in_bfloat16), [1, 3], precision=torch.bfloat16)
    )
    # Float16 cannot hold a gradient of a hundred-millionth, however little precision is asked for.
    short = problems(Subject(lambda size: UserExchange("mine", in_float16), [1, 3], precision=torch.float16))
    assert short.keys() == {"the sum"}


def test_wrong_rules_are_caught():
    def the_first_one(rows, bad):
        return rows[0]

    favours = Subject(lambda size: Robust(the_first_one, bad=0), [3], is_rule=True)
    assert problems(favours).keys() == {"no preferred rank"}

    def one_third(rows, bad):
        return median(rows) / 3

    too_short = Subject(lambda size: Robust(one_third, bad=0), [3], is_rule=True)
    assert "as the sum" in problems(too_short)["stands for the sum"]

    def torchs_median(rows, bad):
        return rows.median(0).values

    poisoned = Subject(lambda size: Robust(torchs_median, bad=1), [3], is_rule=True)
    assert "the norm nan when rank 0 sends nan" in problems(poisoned)["tolerates"]

    boasting = Subject(lambda size: Robust(lambda rows, bad: median(rows), bad=3), [3], is_rule=True)
    assert "tolerates 3 bad workers, but there are only 3" in problems(boasting)["tolerates"]


@pytest.mark.parametrize("how", ["busy", "waiting"])
def test_an_exchange_that_never_comes_back_ends_the_examination(how):
    over = threading.Event()

    def hangs(group, bucket):
        if how == "busy" and group.rank == 1:
            over.wait()
        elif how == "waiting":
            group.recv(bucket, (group.rank + 1) % group.size).wait()

    (verdict,) = examine(Subject(lambda size: UserExchange("mine", hangs), [2], limit_s=1.0))
    over.set()
    assert verdict.name == "returns"
    assert ("rank 1 has not returned after 1 s" if how == "busy" else "no progress") in verdict.problem
    assert "No further check was made." in verdict.problem


def test_the_data_is_hard_to_add_up():
    """If any order of additions gave the same bits, the contract could not see the difference."""
    rows = hard_rows(4, 257, torch.float32)
    assert not torch.equal(
        (rows[0] + rows[1]) + (rows[2] + rows[3]), ((rows[3] + rows[2]) + rows[1]) + rows[0]
    )
