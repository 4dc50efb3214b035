"""Events: written off the hot path, whole up to the last line."""

import contextlib
import os
import random
import threading

import pytest

from shoal.errors import ConfigError
from shoal.events.file import EventFile, check_events, read_events
from shoal.events.folder import RunFolder, run_id_line


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


def test_only_some_events_are_read_where_others_are_not_needed(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    with EventFile(path) as events:
        for event in ("start", "step", "end", "step"):
            events.append({"event": event, "step": 0})
    assert [each["event"] for each in read_events(path, "start", "end")] == ["start", "end"]


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
def test_lines_of_an_older_version_that_are_no_records_are_an_error(tmp_path, line):
    path = tmp_path / "events.rank0.jsonl"
    path.write_text(f'{{"event":"a"}}\n{line}\n{{"event":"b"}}\n', errors="surrogateescape")
    with pytest.raises(ConfigError, match=r"line 2 of events.rank0.jsonl"):
        read_events(path)


@pytest.mark.parametrize("checked", [True, False])
def test_a_resumed_run_does_not_continue_a_line_cut_short(tmp_path, checked):
    path = a_run(tmp_path).events() if checked else tmp_path / "events.rank0.jsonl"
    for step in range(2):
        with EventFile(path) as events:
            events.append(start(step) if checked else {"event": "start", "step": step})
            events.append({"event": "x"})
        with path.open("a") as file:
            file.write('{"event":"b","n":')
    assert [record["event"] for record in read_events(path)] == ["start", "x", "start", "x"]


RUN_ID = "0123456789abcdef"


def a_run(folder, run_id=RUN_ID):
    run = RunFolder(folder)
    run.config.write_text(run_id_line(run_id))
    return run


def start(step=0, run_id=RUN_ID, rank=0):
    return {"event": "start", "step": step, "run_id": run_id, "rank": rank}


def write(path, *records):
    with EventFile(path) as events:
        for record in records:
            events.append(record)


def whole_file(folder):
    path = a_run(folder).events()
    write(path, start(), *({"event": "x", "n": n, "value": n / 7} for n in range(6)))
    write(path, start(3), *({"event": "x", "n": n, "value": n / 7} for n in range(3, 6)), {"event": "end"})
    return path


@pytest.mark.parametrize("seed", range(60))
def test_any_damage_to_a_line_is_an_error_or_changes_nothing(tmp_path, seed):
    path = whole_file(tmp_path)
    content, written = bytearray(path.read_bytes()), read_events(path)
    draw = random.Random(seed)
    position = draw.randrange(len(content))
    content[position] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    with contextlib.suppress(ConfigError):
        # The last line of an attempt counts as cut short if its checksum cannot be recognised.
        assert [record for record in read_events(path) if record not in written] == []
        assert len(read_events(path)) >= len(written) - 1


def moved(lines):
    lines[3], lines[4] = lines[4], lines[3]


def deleted(lines):
    del lines[2:4]


def repeated(lines):
    lines.insert(3, lines[3])


def changed(lines):
    lines[4] = lines[4].replace(b'"n":3', b'"n":8')


def without_checksum(lines):
    lines[4] = b'{"event":"x","n":8}\n'


def of_another_file(lines):
    lines[4] = b'{"event":"x","n":8,"crc":"00c0ffee"}\n'


@pytest.mark.parametrize("change", [moved, deleted, repeated, changed, without_checksum, of_another_file])
def test_lines_that_were_not_written_so_are_an_error(tmp_path, change):
    path = whole_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))
    with pytest.raises(ConfigError, match=r"is damaged: line \d+ of events.rank0.jsonl"):
        read_events(path)


@pytest.mark.parametrize(
    ("run_id", "rank", "sentence"),
    [("feed", 0, f"belongs to run feed, .* {RUN_ID}"), (RUN_ID, 1, "rank 1"), ("", 0, "belongs to .* older")],
)
def test_events_of_another_run_or_worker_are_an_error(tmp_path, run_id, rank, sentence):
    path = a_run(tmp_path).events()
    write(path, start(run_id=run_id, rank=rank))
    with pytest.raises(ConfigError, match=sentence):
        read_events(path)


def test_a_finished_run_has_the_end_of_every_worker(tmp_path):
    run, result = a_run(tmp_path), {"status": "completed", "workers": 2}
    for rank in range(3):  # the third is of an earlier attempt with more workers, which was killed
        write(run.events(rank), start(rank=rank), *([{"event": "end"}] if rank < 2 else []))
    check_events(run, result)
    path = run.events(1)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    check_events(run, result | {"status": "interrupted"})
    with pytest.raises(ConfigError, match=r"events.rank1.jsonl lacks the end"):
        check_events(run, result)


def test_nothing_is_written_through_a_link(tmp_path):
    other = tmp_path / "other"
    other.write_text("of somebody else\n")
    path = tmp_path / "events.rank0.jsonl"
    path.symlink_to(other)
    with pytest.raises(ConfigError, match="symbolic link"):
        EventFile(path)
    assert other.read_text() == "of somebody else\n"


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
            events._file = open("/dev/full", "wb")  # noqa: SIM115 - the event file closes it
            events.append({"event": "x"})
            raise KeyError

    with pytest.warns(UserWarning, match="No space left"), pytest.raises(KeyError):
        fail()


def test_a_full_disk_is_reported_at_the_end(tmp_path):
    events = EventFile(tmp_path / "events.rank0.jsonl")
    events._file.close()
    events._file = open("/dev/full", "wb")  # noqa: SIM115 - the event file closes it
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


def test_damage_after_a_first_reading_is_noticed(tmp_path):
    (tmp_path / "config.toml").write_text(run_id_line("5eed"))
    path = RunFolder(tmp_path).events()
    with EventFile(path) as events:
        events.append({"event": "start", "step": 0, "run_id": "5eed", "rank": 0})
        events.append({"event": "x", "n": 1})
    assert len(read_events(path)) == len(read_events(path)) == 2
    status = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":2'))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(ConfigError):
        read_events(path)
    (tmp_path / "config.toml").write_text(run_id_line("0ther"))
    with pytest.raises(ConfigError):
        read_events(path)
