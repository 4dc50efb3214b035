"""One step on one clock: made-up spans in, known intervals, joins and critical paths out."""

import shutil

import pytest
from made_steps import MS, call, span, step, two_ranks, write_steps

from shoal.config.read import read
from shoal.errors import ConfigError
from shoal.launch.run import launch_run
from shoal.report.timeline import read_timeline
from shoal.training.observer import Silent


def milliseconds(step, intervals):
    return [
        (each.part, (each.start_ns - step.start_ns) / MS, (each.end_ns - step.start_ns) / MS)
        for each in intervals
    ]


def path_of(step):
    return [
        (each.rank, (each.start_ns - step.start_ns) / MS, (each.end_ns - step.start_ns) / MS)
        for each in step.path
    ]


def test_every_moment_of_a_worker_has_one_part(tmp_path):
    found = read_timeline(two_ranks(tmp_path / "run")).median
    first, second = (milliseconds(found, row.intervals) for row in found.rows)
    assert first == [
        ("data", 0, 1), ("compute", 1, 5), ("wait", 5, 8), ("move", 8, 9), ("move", 9, 9.2), ("compute", 9.2, 10)
    ]  # fmt: skip
    assert second == [
        ("data", 0, 1), ("compute", 1, 8), ("move", 8, 9), ("move", 9, 9.2), ("compute", 9.2, 10)
    ]  # fmt: skip
    assert [row.intervals[2].name for row in found.rows] == ["all_reduce", "all_reduce"]


def test_the_critical_path_goes_to_the_worker_that_arrived_last(tmp_path):
    found = read_timeline(two_ranks(tmp_path / "run")).median
    (join,) = found.joins
    assert (join.name, join.last, sorted(join.arrived_ns)) == ("all_reduce", 1, [0, 1])
    assert path_of(found) == [(0, 8, 10), (1, 0, 8)]
    assert found.path_ns == {
        "data": MS, "compute": 7.8 * MS, "encode": 0, "move": 1.2 * MS, "wait": 0, "idle": 0
    }  # fmt: skip
    assert (found.on_path_ns(0), found.on_path_ns(1)) == (2 * MS, 8 * MS)


def test_workers_with_clocks_of_their_own_come_onto_one(tmp_path):
    together = read_timeline(two_ranks(tmp_path / "one")).median
    assert read_timeline(two_ranks(tmp_path / "two", clock_ms=(0, 5000))).median == together


def test_messages_meet_the_worker_that_they_name(tmp_path):
    """Three stages: the last one waits for the middle one, which waits for the first."""
    first = [span("F0", "compute", 0, 3), *call("send", 1, 3, 3.5, peer=1)]
    middle = [*call("recv", 1, 0, 4, peer=0), span("F0", "compute", 4, 6), *call("send", 2, 6, 6.5, peer=2)]
    last = [*call("recv", 1, 0, 7, peer=1), span("F0", "compute", 7, 10)]
    found = read_timeline(
        write_steps(tmp_path / "run", *([step(0, own, 0.01)] for own in (first, middle, last)))
    )
    assert path_of(found.median) == [(2, 6, 10), (1, 3, 6), (0, 0, 3)]
    assert [sorted(join.arrived_ns) for join in found.median.joins] == [[0, 1], [1, 2]]


@pytest.mark.parametrize("peer", [2, -1])
def test_messages_with_a_server_are_no_messages_between_workers(peer, tmp_path):
    """They are one meeting: the server answers when it has heard all, so the early worker waits for the late one."""

    def own(sent):
        asked = call("send", 1, sent, sent, peer=peer) + call("recv", 2, sent, 9, peer=peer)
        return [step(0, [span("backward", "compute", 0, sent), *asked], 0.009)]

    server = [{"event": "update", "step": 0}]
    found = read_timeline(write_steps(tmp_path / "run", own(3), own(6), server)).median
    assert [row.shares_ns["wait"] / MS for row in found.rows] == [3, 0]
    assert path_of(found) == [(0, 6, 9), (1, 0, 6)]


def test_a_call_that_was_waited_for_later_holds_up_nobody_before(tmp_path):
    """Issued during backward: the worker computes until it waits."""
    early = [
        span("backward", "compute", 0, 6), *call("all_reduce", 1, 2, 9, issued=2.2, wait=6)
    ]  # fmt: skip
    late = [span("backward", "compute", 0, 7), *call("all_reduce", 1, 7, 9)]
    found = read_timeline(
        write_steps(tmp_path / "run", [step(0, early, 0.009)], [step(0, late, 0.009)])
    ).median
    parts = milliseconds(found, found.rows[0].intervals)
    assert parts == [("compute", 0, 2), ("wait", 2, 2.2), ("compute", 2.2, 6), ("wait", 6, 7), ("move", 7, 9)]
    assert path_of(found) == [(0, 7, 9), (1, 0, 7)]


def test_the_median_and_the_slowest_step_are_shown_after_the_first_two(tmp_path):
    lengths_ms = {0: 90, 1: 5, 2: 10, 3: 30, 4: 11, 5: 80, 6: 12}
    records, end_ms = [], 0
    for number, length in lengths_ms.items():
        records.append(
            step(
                number,
                [span("forward", "compute", end_ms, end_ms + length)],
                (end_ms + length) / 1e3,
                number != 5,
            )
        )
        end_ms += length
    found = read_timeline(write_steps(tmp_path / "run", records))
    assert (found.median.step, found.slowest.step, found.kept) == (4, 3, 4)
    assert found.slowest_of_all == (5, pytest.approx(0.08))
    assert list(found.steps) == ["median", "slowest"]


def test_time_in_no_span_is_idle(tmp_path):
    records = [step(0, [span("forward", "compute", 0, 4), span("update", "compute", 5, 6)], 0.008)]
    (row,) = read_timeline(write_steps(tmp_path / "run", records)).median.rows
    assert [(each.part, each.duration_ns / MS) for each in row.intervals] == [
        ("compute", 4), ("idle", 1), ("compute", 1), ("idle", 2)
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", ["ddp", "zero", "pipeline", "server"])
def test_shares_add_up_to_the_time_of_the_step_on_every_rank(strategy, tmp_path):
    flags = (
        "--data synthetic --data.samples 192 --data.shape 1,4,4 --model mlp --model.hidden 8,8 --batch-size 8 "
        "--epochs 1 --threads 1 --device cpu --launcher threads "
        f"--strategy {strategy} --workers 2 --runs-dir {tmp_path}"
    )
    launch_run(read(None, [*flags.split(), "--name", "it"]), Silent())
    found = read_timeline(tmp_path / "it")
    assert not found.problems
    for each in found.steps.values():
        assert [row.rank for row in each.rows] == [0, 1]
        for row in each.rows:
            assert sum(row.shares_ns.values()) / 1e9 == pytest.approx(row.seconds, rel=0.02)


def test_what_is_whole_is_shown_and_the_rest_is_named(tmp_path):
    folder = two_ranks(tmp_path / "run")
    cut, whole = (folder / f"events.rank{rank}.jsonl" for rank in (0, 1))
    lines = cut.read_bytes().splitlines(keepends=True)

    cut.write_bytes(b"".join(lines)[:-40])
    found = read_timeline(folder)
    assert ([row.rank for row in found.median.rows], found.problems) == ([1], ()), (
        "a line that a crash cut short"
    )

    cut.write_bytes(b"".join([lines[0], lines[1][:20], b"\n", *lines[2:]]))
    found = read_timeline(folder)
    assert [row.rank for row in found.median.rows] == [1]
    assert len(found.problems) == 1
    assert cut.name in found.problems[0]

    shutil.copy(whole, cut)
    (problem,) = read_timeline(folder).problems
    assert "has the events of rank 1" in problem

    cut.unlink()
    (problem,) = read_timeline(folder).problems
    assert cut.name in problem

    other = write_steps(tmp_path / "other", [step(0, [span("forward", "compute", 0, 4)], 0.004)])
    text = (other / "events.rank0.jsonl").read_text().replace("5eed", "feed")
    cut.write_text(text)
    assert len(read_timeline(folder).problems) == 1


def test_nothing_to_show_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="no run folder"):
        read_timeline(tmp_path / "none")
    with pytest.raises(ConfigError, match="is not a run folder"):
        read_timeline(tmp_path)
    folder = write_steps(tmp_path / "run", [step(0, [], 0.1, kept=False)])
    with pytest.raises(ConfigError, match="no step of the run"):
        read_timeline(folder)
    (folder / "events.rank0.jsonl").write_text("{broken\n{}\n")
    with pytest.raises(ConfigError, match="is damaged"):
        read_timeline(folder)
