"""Events: written off the hot path, whole up to the last line."""

import os
import threading

import pytest

from shoal.errors import ConfigError
from shoal.events.file import EventFile, read_events


def test_every_record_arrives_in_order_also_from_two_threads(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    with EventFile(path) as events:
        threads = [
            threading.Thread(
                target=lambda who=who: [
                    events.append({"event": "x", "who": who, "n": n}) for n in range(2000)
                ]
            )
            for who in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = read_events(path)
    for who in range(2):
        assert [record["n"] for record in records if record["who"] == who] == list(range(2000))


def test_a_resumed_run_appends(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    for n in range(2):
        with EventFile(path) as events:
            events.append({"event": "x", "n": n})
    assert [record["n"] for record in read_events(path)] == [0, 1]


def test_a_line_cut_short_by_a_crash_is_left_out(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    path.write_text('{"event":"a"}\n{"event":"b"}\n{"event":')
    assert read_events(path) == [{"event": "a"}, {"event": "b"}]


@pytest.mark.parametrize(
    "line",
    ['{"event":', "5", "{}", '{"event":"step","step":1}', "[" * 5000, "\0", "\udcff", '{"event":["x"]}'],
)
def test_damaged_lines_are_left_out_and_reported(tmp_path, line):
    path = tmp_path / "events.rank0.jsonl"
    path.write_text(f'{{"event":"a"}}\n{line}\n{{"event":"b"}}\n', errors="surrogateescape")
    with pytest.warns(UserWarning, match=r"events.rank0.jsonl: line 2 is damaged and left out"):
        assert read_events(path) == [{"event": "a"}, {"event": "b"}]
    path.write_text('{"event":\n5\n')
    with pytest.warns(UserWarning, match="2 lines are damaged"):
        assert read_events(path) == []


def test_a_resumed_run_does_not_continue_a_line_cut_short(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    path.write_text('{"event":"a"}\n{"event":"b","n":')
    with EventFile(path) as events:
        events.append({"event": "c"})
    with pytest.warns(UserWarning, match="line 2 is damaged"):
        assert read_events(path) == [{"event": "a"}, {"event": "c"}]


def test_a_missing_file_and_what_is_no_file_are_errors(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    with pytest.raises(ConfigError, match=r"is not a run folder: events.rank0.jsonl: No such file"):
        read_events(path)
    os.mkfifo(path)
    for use in (read_events, EventFile):
        with pytest.raises(ConfigError, match="it is a pipe, a socket or a device"):
            use(path)
    with pytest.raises(ConfigError, match="cannot write .*: No such file"):
        EventFile(tmp_path / "deleted" / "events.rank0.jsonl")


def test_a_full_disk_does_not_hide_the_error_that_ends_the_run(tmp_path):
    def fail():
        with EventFile(tmp_path / "events.rank0.jsonl") as events:
            events._file.close()
            events._file = open("/dev/full", "w")  # noqa: SIM115 - the event file closes it
            events.append({"event": "x"})
            raise KeyError

    with pytest.warns(UserWarning, match="No space left"), pytest.raises(KeyError):
        fail()


def test_a_full_disk_is_reported_at_the_end(tmp_path):
    events = EventFile(tmp_path / "events.rank0.jsonl")
    events._file.close()
    events._file = open("/dev/full", "w")  # noqa: SIM115 - the event file closes it
    events.append({"n": 0})
    with pytest.raises(ConfigError, match="No space left"):
        events.close()


def test_after_a_flush_a_crash_loses_nothing(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    with EventFile(path) as events:
        for n in range(100):
            events.append({"event": "x", "n": n})
        events.flush()
        assert [record["n"] for record in read_events(path)] == list(range(100))
