import json

import pytest

from shoal_labs.steps import read_steps

MS = 1_000_000


def record(step, seconds, agreed, exchange, calls):
    """A step as a worker writes it: two spans of exchange, and the group's calls."""
    spans = [
        ["forward", "compute", "main", 0, 5 * MS, 0, "", -1],
        ["exchange", "move", "main", agreed[0] * MS, agreed[1] * MS, 0, "", -1],
        ["exchange", "move", "main", exchange[0] * MS, exchange[1] * MS, 0, "", -1],
    ]
    for operation, size, at in calls:
        spans.append([operation, "move", "main", at * MS, at * MS, size, "world", 1])
        spans.append([operation, "wait", "main", at * MS, at * MS, 0, "world", 1])
    return {"event": "step", "step": step, "seconds": seconds, "totals_ns": {}, "spans": spans}


def write(folder, rank, *records):
    lines = [{"event": "start", "step": 0}, *records, {"event": "end"}]
    (folder / f"events.rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_waiting_ends_when_the_last_worker_begins_to_exchange(tmp_path):
    calls = [("all_reduce", 8, 2), ("all_reduce", 16, 11), ("send", 40, 41), ("recv", 40, 42)]
    write(tmp_path, 0, record(0, 0.060, (10, 38), (40, 50), calls))
    write(tmp_path, 1, record(0, 0.060, (35, 38), (40, 51), [("send", 40, 43), ("send", 2, 44)]))
    ((fast, slow),) = read_steps(tmp_path, 2)
    assert (fast.wait_ms, fast.move_ms, fast.exchange_ms) == (25, 15, 40)
    assert (slow.wait_ms, slow.move_ms) == (0, 16)
    assert fast.own_ms == pytest.approx(20)
    assert slow.own_ms == pytest.approx(44)


def test_only_calls_that_exchange_gradients_count(tmp_path):
    calls = [("all_reduce", 8, 2), ("all_reduce", 16, 11), ("send", 40, 41), ("recv", 40, 42)]
    for rank in (0, 1):
        write(tmp_path, rank, record(0, 0.060, (10, 38), (40, 50), calls))
    ((one, _),) = read_steps(tmp_path, 2)
    assert dict(one.calls) == {"send": 1, "recv": 1}
    assert one.sent_bytes == 40


def test_a_step_takes_its_own_seconds(tmp_path):
    steps = [record(n, 0.05 * (n + 1), (10, 12), (12, 20), []) for n in range(3)]
    write(tmp_path, 0, *steps)
    assert [step[0].own_ms for step in read_steps(tmp_path, 1)] == pytest.approx([40, 40, 40])


def test_calls_that_the_host_issues_before_the_device_is_ready_count(tmp_path):
    ahead = record(0, 0.060, (10, 38), (40, 50), [("all_reduce", 16, 11)])
    ahead["spans"] += [
        ["all_reduce", "move", "main", 39 * MS, 39 * MS, 40, "world", 2],
        ["all_reduce", "wait", "main", 39 * MS, 49 * MS, 0, "world", 2],
    ]
    write(tmp_path, 0, ahead)
    ((one,),) = read_steps(tmp_path, 1)
    assert dict(one.calls) == {"all_reduce": 1}
    assert one.sent_bytes == 40
