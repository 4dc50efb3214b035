"""The trace of a run, parsed back: every slice and every arrow."""

import io
import json

import pytest
from made_steps import span, step, two_ranks, write_steps

from shoal.config.read import read
from shoal.launch.run import launch_run
from shoal.report.step_index import read_indices
from shoal.report.trace import chosen, write_trace
from shoal.training.observer import Silent


def parsed(folder):
    """The slices and the arrows of a trace; an arrow is its start and its end."""
    file = io.BytesIO()
    indices, problems = read_indices(folder)
    assert not problems
    write_trace(file, indices)
    events = json.loads(file.getvalue())["traceEvents"]
    assert {event["ph"] for event in events} <= set("MXsf")
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    arrows = [(event, ends.pop(event["id"])) for event in events if event["ph"] == "s"]
    assert not ends
    return [event for event in events if event["ph"] == "X"], arrows


def test_every_span_is_a_slice_with_its_name_and_time(tmp_path):
    slices, _ = parsed(two_ranks(tmp_path / "run", clock_ms=(0, 5000)))
    found = [
        [
            (each["name"], each["cat"], each["ts"] / 1e3, each["dur"] / 1e3)
            for each in slices
            if each["pid"] == rank
        ]
        for rank in (0, 1)
    ]
    assert found[1] == [
        ("step 2", "step", 0, 10),
        ("batch", "data", 0, 1),
        ("backward", "compute", 1, 7),
        ("exchange", "move", 8, pytest.approx(1.2)),
        ("all_reduce (result)", "wait", 8, 1),
        ("all_reduce", "move", 8, 0),
        ("update", "compute", pytest.approx(9.2), pytest.approx(0.8)),
    ]
    assert found[0][0] == ("step 2", "step", 0, 10)
    waited = [each["args"]["waited_ms"] for each in slices if each["name"] == "all_reduce (result)"]
    assert waited == [3, 0]


def test_an_arrow_goes_from_the_member_that_came_last(tmp_path):
    _, ((start, end),) = parsed(two_ranks(tmp_path / "run"))
    assert (start["pid"], start["ts"], end["pid"], end["ts"]) == (1, 8000, 0, 8000)
    assert start["name"] == end["name"] == "all_reduce"


@pytest.mark.parametrize("strategy", ["ddp", "zero", "pipeline"])
def test_every_slice_and_arrow_of_a_run_fits(strategy, tmp_path):
    flags = (
        "--data synthetic --data.samples 96 --data.shape 1,4,4 --model mlp --model.hidden 8,8 --batch-size 8 "
        "--epochs 1 --threads 1 --device cpu --launcher threads --trace "
        f"--strategy {strategy} --workers 3 --runs-dir {tmp_path}"
    )
    launch_run(read(None, [*flags.split(), "--name", "it"]), Silent())
    slices, arrows = parsed(tmp_path / "it")
    whole = {(each["pid"], each["args"]["step"]): each for each in slices if each["cat"] == "step"}
    assert len(whole) == 3 * 12
    for each in slices:
        outer = whole[each["pid"], each["args"]["step"]]
        assert each["name"]
        assert holds(outer, each["ts"])
        assert holds(outer, each["ts"] + each["dur"])
    calls = [each for each in slices if "group" in each["args"]]
    assert arrows
    for start, end in arrows:
        assert start["pid"] != end["pid"]
        sources, targets = (
            [each for each in calls if each["pid"] == at["pid"] and holds(each, at["ts"])]
            for at in (start, end)
        )
        same = [
            (source["args"]["step"], target["args"]["group"])
            for source in sources
            for target in targets
            if source["args"]["step"] == target["args"]["step"]
            and source["args"]["group"] == target["args"]["group"]
            and partner(source["name"]) == target["name"].removesuffix(" (result)")
        ]
        assert same, (start, end)
    if strategy != "pipeline":
        names = {start["name"] for start, _ in arrows}
        issued = [each for each in calls if each["name"] in names]
        assert len(arrows) == 2 * len(issued) // 3, "from one member to both others"


def holds(each, moment):
    return each["ts"] - 0.002 <= moment <= each["ts"] + each["dur"] + 0.002


def partner(name):
    name = name.removesuffix(" (result)")
    return {"send": "recv", "recv": "send"}.get(name, name)


def test_of_a_long_run_the_slowest_steps_are_kept():
    seconds = dict.fromkeys(range(0, 2000, 20), 0.1) | {460: 0.5, 1980: 0.4}
    found = chosen(seconds, most=10, slowest=2)
    assert {460, 1980} < set(found)
    assert len(found) == len(set(found)) == 10
    assert found == sorted(found)


def test_workers_without_shared_steps_are_all_there(tmp_path):
    """Each worker takes the share that is free, so every step is of one worker."""
    ranks = [[step(rank, [span("forward", "compute", rank, rank + 1)], 0.01)] for rank in range(2)]
    slices, arrows = parsed(write_steps(tmp_path / "run", *ranks))
    assert [(each["name"], each["pid"]) for each in slices if each["cat"] == "step"] == [
        ("step 0", 0),
        ("step 1", 1),
    ]
    assert not arrows
