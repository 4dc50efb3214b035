"""Events: written off the hot path, whole up to the last line."""

import threading

import pytest

from shoal.errors import ConfigError
from shoal.events.file import EventFile, read_events


def test_every_record_arrives_in_order_also_from_two_threads(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    with EventFile(path) as events:
        threads = [
            threading.Thread(
                target=lambda who=who: [events.append({"who": who, "n": n}) for n in range(2000)]
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
            events.append({"n": n})
    assert read_events(path) == [{"n": 0}, {"n": 1}]


def test_a_line_cut_short_by_a_crash_is_left_out(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    path.write_text('{"n":0}\n{"n":1}\n{"n":')
    assert read_events(path) == [{"n": 0}, {"n": 1}]


def test_a_damaged_line_in_the_middle_is_an_error_and_so_is_a_missing_file(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    with pytest.raises(ConfigError, match=r"is not a run folder: events.rank0.jsonl: No such file"):
        read_events(path)
    path.write_text('{"n":\n{"n":1}\n')
    with pytest.raises(ConfigError, match=r"events.rank0.jsonl is damaged"):
        read_events(path)


def test_a_full_disk_is_told_at_the_end(tmp_path):
    events = EventFile(tmp_path / "events.rank0.jsonl")
    events._file.close()
    events._file = open("/dev/full", "w")  # noqa: SIM115 - the event file closes it
    events.append({"n": 0})
    with pytest.raises(ConfigError, match="No space left"):
        events.close()
