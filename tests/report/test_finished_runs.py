import json

import numpy as np
import pytest

from shoal.config.schema import RunConfig
from shoal.config.write import to_toml
from shoal.errors import ConfigError
from shoal.report.finished_runs import extremes, mean_curve, read_run


def step(number, loss, samples=10, seconds=None):
    seconds = 0.5 * (number + 1) if seconds is None else seconds
    return {
        "event": "step",
        "step": number,
        "epoch": 0,
        "samples": samples,
        "loss": loss,
        "seconds": seconds,
    } | {"totals_ns": {}}


def write_run(path, records, result=True):
    path.mkdir(exist_ok=True)
    (path / "config.toml").write_text(to_toml(RunConfig()), encoding="utf-8")
    (path / "events.rank0.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    if result:
        (path / "result.json").write_text(json.dumps({"status": "completed", "steps": 3}), encoding="utf-8")
    return path


def test_a_loss_stands_where_the_weights_were_when_it_was_measured(tmp_path):
    run = read_run(write_run(tmp_path / "run", [step(0, 3.0), step(1, 2.0), step(2, 1.0, samples=4)]))
    assert run.curve.steps.tolist() == [0, 1, 2]
    assert run.curve.samples.tolist() == [0, 10, 20]
    assert run.curve.seconds.tolist() == [0, 0.5, 1.0]
    assert run.curve.loss.tolist() == [3, 2, 1]
    assert run.samples == 24


def test_what_a_resumed_run_did_again_counts_once(tmp_path):
    start = {"event": "start", "step": 0}
    again = {"event": "start", "step": 1}
    records = [start, step(0, 3.0), step(1, 9.0), {"event": "validation", "step": 2, "loss": 9.0}]
    records += [again, step(1, 2.0), {"event": "validation", "step": 2, "loss": 1.5}]
    run = read_run(write_run(tmp_path / "run", records))
    assert run.curve.loss.tolist() == [3, 2]
    assert [record["loss"] for record in run.validations] == [1.5]


def test_rises_are_counted_per_step(tmp_path):
    run = read_run(write_run(tmp_path / "run", [step(i, loss) for i, loss in enumerate([3, 2, 2.5, 1, 0.5])]))
    assert run.curve.rises() == 0.25


def test_smoothing_does_not_lag_behind_a_steep_start(tmp_path):
    losses = np.geomspace(2.3, 0.1, 200)
    run = read_run(write_run(tmp_path / "run", [step(i, loss) for i, loss in enumerate(losses)]))
    smoothed = run.curve.smoothed(20)
    assert smoothed[0] == losses[0]
    assert np.all(smoothed <= 1.4 * losses)
    assert smoothed[-1] == pytest.approx(losses[-20:].mean())


def test_the_mean_of_runs_is_as_long_as_the_shortest(tmp_path):
    long = read_run(write_run(tmp_path / "a", [step(0, 4.0), step(1, 2.0), step(2, 1.0)])).curve
    short = read_run(write_run(tmp_path / "b", [step(0, 2.0), step(1, 0.0)])).curve
    assert mean_curve([long, short]).loss.tolist() == [3, 1]


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(ConfigError, match="is not a run folder"):
        read_run(tmp_path)
    with pytest.raises(ConfigError, match="has no finished run"):
        read_run(write_run(tmp_path / "open", [step(0, 1.0)], result=False))


def test_a_damaged_event_file_is_named(tmp_path):
    path = write_run(tmp_path / "run", [step(0, 1.0)])
    (path / "events.rank0.jsonl").write_text("{broken\n{}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"is damaged: line 1 of events.rank0.jsonl"):
        read_run(path)


@pytest.mark.parametrize("change", [{"samples": "x"}, {"loss": []}, {"seconds": None}])
def test_impossible_values_in_events_without_checksums_are_one_sentence(tmp_path, change):
    path = write_run(tmp_path / "run", [step(0, 1.0), step(1, 1.0) | change, step(2, 1.0)])
    with pytest.raises(ConfigError, match="is damaged"):
        read_run(path)


def test_a_long_run_keeps_its_extremes():
    values = np.sin(np.arange(50_000.0))
    values[12_345] = 9.0
    chosen = extremes(values, 300)
    assert len(chosen) <= 602
    assert 12_345 in chosen
    assert {0, 49_999} <= {*chosen.tolist()}
