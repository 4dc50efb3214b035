"""The bound on the difference after one step: real runs stay below it, and a lost sample exceeds it by far."""

import json

import pytest

from shoal.compare.weight_difference import FIRST_STEP_BOUND, first_step_difference
from shoal.config.read import read
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

SMALL = "--steps 2 --device cpu --threads 1 --train.test false --checkpoint.first_step true"
DDP = "--strategy ddp --workers 2 --launcher threads"


@pytest.fixture
def first_step(tmp_path):
    """Trains, and gives the state after the first step."""

    def trained(name, flags):
        config = read(
            "quickstart", [*f"{SMALL} {flags}".split(), "--runs-dir", str(tmp_path), "--name", name]
        )
        launch_run(config, Silent())
        return tmp_path / name / "first_step.safetensors"

    return trained


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_correct_run_is_within_the_bound_and_a_lost_sample_is_not(first_step, optimizer):
    of = f"--optimizer {optimizer}"
    reference = first_step("single", of)
    for name, flags in {"ddp": DDP, "dp": "--strategy dp --workers 2 --launcher threads"}.items():
        assert first_step_difference(first_step(name, f"{of} {flags}"), reference) <= FIRST_STEP_BOUND / 10
    lost = first_step("lost", f"{of} --batch-size 63")
    assert first_step_difference(lost, reference) > 10 * FIRST_STEP_BOUND


def test_recording_the_first_step_does_not_change_the_training(first_step, tmp_path):
    first_step("recorded", DDP)
    path = first_step("not-recorded", f"{DDP} --checkpoint.first_step false")
    assert not path.exists()
    results = [
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("recorded", "not-recorded")
    ]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]


def test_every_worker_records_how_long_it_was_not_scheduled(first_step, tmp_path):
    first_step("ddp", DDP)
    for rank in range(2):
        end = json.loads((tmp_path / f"ddp/events.rank{rank}.jsonl").read_text().splitlines()[-1])
        assert end["not_scheduled"] is None or end["not_scheduled"] >= 0
