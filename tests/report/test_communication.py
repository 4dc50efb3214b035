"""Waiting distinguished from moving: hand-made events in, known seconds out."""

import json
import sys

import pytest

from shoal.errors import ConfigError
from shoal.report.communication import communication

MS = 1_000_000


def call(operation, sequence, start, end, issued=None, wait=None, group="world", num_bytes=100):
    """The two spans of a call in milliseconds; by default the wait begins as soon as the call is issued."""
    issued = start if issued is None else issued
    start, issued, wait, end = (
        round(moment * MS) for moment in (start, issued, issued if wait is None else wait, end)
    )
    return [
        [operation, "move", "main", start, issued, num_bytes, group, sequence],
        [operation, "wait", "main", wait, end, 0, group, sequence],
    ]


def step(number, calls, step_ms=10.0, compute_ms=6.0, move_ms=0.0, kept=True):
    spans = [span for each in calls for span in each]
    record = {
        "event": "step",
        "step": number,
        "samples": 8,
        "loss": 1.0,
        "seconds": (number + 1) * step_ms / 1e3,
    }
    record["totals_ns"] = {
        "compute": round(compute_ms * MS),
        **({"move": round(move_ms * MS)} if move_ms else {}),
    }
    record["blocked_ns"] = sum(end - start for _, _, _, start, end, *_ in spans)
    return record | ({"spans": spans} if kept else {})


def write(folder, *ranks):
    folder.mkdir(exist_ok=True)
    for rank, steps in enumerate(ranks):
        lines = [json.dumps(record) for record in [{"event": "start", "step": 0}, *steps]]
        (folder / f"events.rank{rank}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_who_comes_first_waits_and_who_comes_last_only_moves(tmp_path):
    early = [step(n, [call("all_reduce", n, 6, 10)]) for n in range(3)]
    late = [step(n, [call("all_reduce", n, 9, 10)], compute_ms=9) for n in range(3)]
    first, second = communication(write(tmp_path / "run", early, late))
    assert (first.wait, first.move, first.compute) == pytest.approx((0.3, 0.1, 0.6))
    assert (second.wait, second.move, second.compute) == pytest.approx((0.0, 0.1, 0.9))
    assert (first.work_s.value, second.work_s.value) == pytest.approx((0.006, 0.009))
    assert first.other == pytest.approx(0.0)


def test_what_was_done_between_issue_and_wait_is_not_waiting(tmp_path):
    overlapped = [step(n, [call("all_reduce", n, 2, 10, issued=2.5, wait=9)], compute_ms=8) for n in range(2)]
    late = [step(n, [call("all_reduce", n, 8, 10)]) for n in range(2)]
    shares, _ = communication(write(tmp_path / "run", overlapped, late))
    # Half a millisecond of issuing lies before the other came; the last one, waited for, after it.
    assert (shares.wait, shares.move) == pytest.approx((0.05, 0.10))


def test_the_first_steps_are_left_out(tmp_path):
    steps = [step(n, [call("all_reduce", n, 0, 9)] if n < 2 else []) for n in range(4)]
    (shares,) = communication(write(tmp_path / "run", steps))
    assert shares.steps == 2
    assert shares.train_s == pytest.approx(0.02)
    assert shares.move == shares.wait == 0


def test_a_run_of_one_step_has_only_that(tmp_path):
    (shares,) = communication(write(tmp_path / "run", [step(0, [])]))
    assert (shares.steps, shares.compute) == (1, pytest.approx(0.6))


def test_what_kept_steps_say_is_taken_for_all(tmp_path):
    def steps(start):
        return [step(n, [call("all_reduce", n, start, 10)], kept=n in (0, 5)) for n in range(9)]

    shares, _ = communication(write(tmp_path / "run", steps(6), steps(9)))
    assert (shares.steps, shares.steps_kept) == (7, 1)
    assert (shares.wait, shares.move) == pytest.approx((0.3, 0.1))


def test_an_exchange_is_more_than_its_calls(tmp_path):
    early = [step(n, [call("all_reduce", n, 7, 9)], move_ms=4) for n in range(2)]
    late = [step(n, [call("all_reduce", n, 8, 9)]) for n in range(2)]
    shares, _ = communication(write(tmp_path / "run", early, late))
    assert (shares.wait, shares.move, shares.compute) == pytest.approx((0.1, 0.3, 0.6))


def test_blocked_in_the_midst_of_computing_is_not_computing(tmp_path):
    (shares,) = communication(
        write(tmp_path / "run", [step(n, [call("recv", n, 5, 9)], compute_ms=10) for n in range(2)])
    )
    assert (shares.compute, shares.move) == pytest.approx((0.6, 0.4))


def test_between_two_members_every_message_has_its_partner(tmp_path):
    # Rank 0 sends inputs at once, and the second message only when it has its loss.
    asks = [step(n, [call("send", 7, 1, 1), call("recv", 8, 4, 5), call("send", 9, 8, 8)]) for n in range(2)]
    answers = [
        step(n, [call("recv", 3, 0, 2), call("send", 4, 4, 4), call("recv", 5, 5, 9)]) for n in range(2)
    ]
    _, shares = communication(write(tmp_path / "run", asks, answers))
    by_name = {operation.operation: operation for operation in shares.operations}
    assert by_name["recv"].wait_s == pytest.approx(0.004)  # 1 ms for the first, 3 ms for the second
    assert by_name["recv"].move_s == pytest.approx(0.002)
    assert (by_name["recv"].calls, by_name["recv"].sent_bytes) == (2, 0)


def test_a_ring_of_messages_begins_when_the_last_member_comes(tmp_path):
    def ring(start):
        return [
            step(n, [call("send", 2 * n, start, start), call("recv", 2 * n + 1, start, 10)]) for n in range(2)
        ]

    shares = communication(write(tmp_path / "run", ring(4), ring(6), ring(7)))
    assert [rank.wait for rank in shares] == pytest.approx([0.3, 0.1, 0.0])


def test_a_message_of_a_larger_group_meets_the_member_that_it_names(tmp_path):
    """Of three, rank 0 sends to 2 late; rank 1, which has sent at once, does not count for it."""

    def to(peer, calls):
        return [[*row, peer] for row in calls]

    ranks = [
        [step(n, [to(2, call("send", 1, 6, 6))]) for n in range(2)],
        [step(n, [to(2, call("send", 1, 0, 0))]) for n in range(2)],
        [step(n, [to(1, call("recv", 1, 0, 1)), to(0, call("recv", 2, 1, 8))]) for n in range(2)],
    ]
    *_, shares = communication(write(tmp_path / "run", *ranks))
    assert (shares.wait, shares.move) == pytest.approx((0.5, 0.3))


def test_collectives_meet_by_their_order_though_messages_are_numbered_with_them(tmp_path):
    # The root of an algorithm sends more messages, so its later collectives have other numbers.
    root = [
        step(
            n, [call("send", 1, 0, 0), call("send", 2, 0, 0), call("send", 3, 0, 0), call("barrier", 4, 5, 9)]
        )
        for n in range(2)
    ]
    leaf = [step(n, [call("recv", 1, 0, 1), call("barrier", 2, 8, 9)]) for n in range(2)]
    shares, *_ = communication(write(tmp_path / "run", root, leaf, leaf))
    assert shares.wait == pytest.approx(0.3)


def test_smaller_groups_wait_for_their_own_members_only(tmp_path):
    def pair(start, group):
        return [step(n, [call("all_reduce", n, start, 10, group=group)]) for n in range(2)]

    ranks = (pair(5, "world[0,1]"), pair(6, "world[0,1]"), pair(9, "world[2]"))
    shares = communication(write(tmp_path / "run", *ranks))
    assert [rank.wait for rank in shares] == pytest.approx([0.1, 0.0, 0.0])


def test_workers_need_not_share_a_clock(tmp_path):
    def seconds_ahead(steps, seconds):
        """The same steps by a clock that is ahead of rank 0's at the start, and gains 1 ms until the end."""
        offset, later = round(seconds * 1e9), round(seconds * 1e9) + MS
        for each in steps:
            for span in each["spans"]:
                span[3:5] = [moment + offset + moment // 10 for moment in span[3:5]]
        start = {"event": "start", "step": 0, "clock": {"at_ns": offset, "offset_ns": offset, "error_ns": 5}}
        end = {"event": "end", "clock": {"at_ns": later + 10 * MS, "offset_ns": later, "error_ns": 5}}
        return [start, *steps, end]

    def steps(start):
        return [step(n, [call("all_reduce", n, start, 10)]) for n in range(3)]

    shared = communication(write(tmp_path / "shared", steps(6), steps(9), steps(4)))
    ranks = (steps(6), seconds_ahead(steps(9), 5), seconds_ahead(steps(4), -7))
    assert communication(write(tmp_path / "apart", *ranks)) == shared


def test_a_missing_rank_is_tolerated_and_a_resumed_step_counts_once(tmp_path):
    again = [step(0, []), step(1, []), {"event": "start", "step": 1}, *(step(n, []) for n in (1, 2, 3))]
    folder = write(tmp_path / "run", again, *[[step(n, []) for n in range(4)]] * 2)
    (folder / "events.rank1.jsonl").unlink()
    shares = communication(folder)
    assert [rank.rank for rank in shares] == [0, 2]
    assert shares[0].steps == 2


def test_no_run_and_a_damaged_one_are_named(tmp_path):
    with pytest.raises(ConfigError, match="is not a run folder"):
        communication(tmp_path)
    folder = write(tmp_path / "run", [step(0, [])])
    (folder / "events.rank0.jsonl").write_text("{broken\n{}\n")
    with pytest.raises(ConfigError, match=r"is damaged: line 1 of events.rank0.jsonl"):
        communication(folder)


def test_the_parts_of_a_step_add_up_to_it_though_one_step_computed_for_longer_than_it_took(tmp_path):
    """Older runs over RPC counted an evaluation before a step as its computing."""
    steps = [step(n, [], compute_ms=15 if n == 3 else 6) for n in range(5)]
    for record in steps:
        record["totals_ns"]["idle"] = 10 * MS
    (found,) = communication(write(tmp_path / "run", steps))
    assert found.compute == pytest.approx((6 + 15 + 6) / 30)
    assert found.own + found.move + found.wait == pytest.approx(1.0)


def test_windows_of_a_long_run_have_the_shares_of_all_its_steps(tmp_path, monkeypatch):
    def steps(arrives):
        for number in range(200):
            kept = number % 5 == 0
            calls = [call("all_reduce", 1, arrives, 9)] if kept else []
            record = step(number, calls, move_ms=9 - arrives, compute_ms=arrives, kept=kept)
            spans = {"spans": record.pop("spans")} if kept else {}
            counted = {"blocked_ns": (9 - arrives) * MS, "sent_bytes": 7, "mapped_bytes": 2}
            yield record | counted | spans

    folder = write(tmp_path / "run", steps(4), steps(8))
    whole = communication(folder)
    module = sys.modules[communication.__module__]
    monkeypatch.setattr(module, "MOST_STEPS", 60)
    monkeypatch.setattr(module, "WINDOW", 10)
    for of_all, of_windows in zip(whole, communication(folder), strict=True):
        assert (of_windows.steps, of_windows.steps_kept) == (of_all.steps, of_all.steps_kept)
        assert (
            (of_windows.sent_bytes, of_windows.mapped_bytes)
            == (of_all.sent_bytes, of_all.mapped_bytes)
            == (1400, 400)
        )
        for name in ("train_s", "compute_s", "move_s", "wait_s", "encode_s", "data_s"):
            assert getattr(of_windows, name) == pytest.approx(getattr(of_all, name))
        assert len(of_windows.facts.own_s) < len(of_all.facts.own_s)
