import pytest

from shoal.config.schema import SpeedConfig
from shoal.errors import ConfigError
from shoal.labs.lab3.plan import ALIKE, DIVISIONS, SLOW, UNLIKE, partition_of, plan_for


def test_every_division_is_run_with_every_number_of_workers_and_every_seed():
    plan = plan_for("4,2", quick=False, first_seed=7)
    runs = plan.runs()
    assert plan.workers == (2, 4)
    for division in DIVISIONS:
        for workers, seeds in ((2, (7, 8)), (4, (7, 8, 9))):
            configs = [runs[f"{division}-{workers}w-seed{seed}"] for seed in seeds]
            assert {config.partition for config in configs} == {partition_of(division, workers)}
            assert {config.launch.workers for config in configs} == {workers}
            assert [config.launch.launcher for config in configs[:2]] == ["processes", "threads"]
    assert {*ALIKE, *UNLIKE} == set(DIVISIONS)


def test_all_of_them_are_the_same_task_as_one_machines():
    runs = plan_for("2", quick=False, first_seed=0).runs()
    single = runs["single-seed0"]
    for name, config in runs.items():
        assert config.data == single.data
        assert config.train.batch_size == single.train.batch_size
        if not name.startswith(("equal-", "slow-", "reference-")):
            assert config.train.epochs == single.train.epochs
            assert config.optimizer == single.optimizer


def test_parts_by_speed_know_the_slow_worker():
    partition = partition_of("speed", 3)
    assert isinstance(partition, SpeedConfig)
    assert min(partition.speeds) == partition.speeds[SLOW]
    slow = plan_for("3", quick=True, first_seed=0).runs()["speed-3w-seed0"]
    assert slow.launch.bottleneck[0].rank == SLOW


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        ("1", "2 to 10 workers, got --workers 1"),
        ("2,11", "got --workers 11"),
        ("2,x", "expected integers separated by commas, got '2,x'"),
        ("", "expected integers separated by commas, got ''"),
    ],
)
def test_numbers_of_workers_that_the_lab_cannot_use(workers, sentence):
    with pytest.raises(ConfigError, match=sentence):
        plan_for(workers, quick=True, first_seed=0)


def test_one_process_is_timed_between_the_timed_runs():
    plan = plan_for("2,4", quick=False, first_seed=0)
    runs = plan.runs()
    distance, longest = 0, 0
    for name, config in runs.items():
        distance = 0 if name.startswith("reference-") else distance + (config.launch.launcher == "processes")
        longest = max(longest, distance)
    assert longest == 3
    threads = {runs[name].threads for name in runs if name.startswith("reference-all-cores")}
    assert threads == {plan.cores}
