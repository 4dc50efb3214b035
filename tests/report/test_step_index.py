"""Steps found in an event file by searching its lines."""

import json

from made_steps import MS, span, step, write_steps

from shoal.report.step_index import kept_by_most, read_indices


def test_a_resumed_run_has_each_step_once_and_two_clocks(tmp_path):
    def own(start):
        return [span("forward", "compute", start, start + 5)]

    records = [step(0, own(0), 0.01), step(1, [], 0.02, kept=False), step(2, own(20), 0.03)]
    again = {"event": "start", "step": 1, "run_id": "5eed", "rank": 0, "workers": 1}
    again["clock"] = {"at_ns": 0, "offset_ns": 100 * MS, "error_ns": 0}
    folder = write_steps(
        tmp_path / "run", [*records, again, step(1, own(110), 0.025), step(2, own(120), 0.055)]
    )
    ((index,), problems) = read_indices(folder)
    assert not problems
    assert list(index.kept) == [0, 1, 2]
    assert [round(each, 6) for each in index.seconds] == [0.01, 0.015, 0.03]
    assert [index.spans(number)[0].start_ns / MS for number in (0, 1, 2)] == [0, 10, 20]


def test_files_of_older_versions_have_spaces_and_rows_of_calls(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    record = step(0, [], 0.5) | {"calls": [["all_reduce", 8, "world", 1, 2 * MS, 3 * MS, 4 * MS, 5 * MS]]}
    lines = [json.dumps(each) for each in ({"event": "start", "step": 0}, record)]
    (folder / "events.rank0.jsonl").write_text("\n".join(lines) + "\n")
    ((index,), problems) = read_indices(folder)
    assert not problems
    assert [(each.kind, each.start_ns // MS) for each in index.spans(0)] == [("move", 2), ("wait", 4)]


def test_the_steps_of_most_workers_are_compared_by_their_slowest(tmp_path):
    def ranks(*kept):
        return [step(number, [], (number + 1) / 100, number in kept) for number in range(4)]

    indices, _ = read_indices(write_steps(tmp_path / "run", ranks(0, 1, 2), ranks(0, 2), ranks(0, 2, 3)))
    assert {step: round(seconds, 6) for step, seconds in kept_by_most(indices).items()} == {0: 0.01, 2: 0.01}
