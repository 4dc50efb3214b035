from dataclasses import replace

import pytest

from shoal.config.sections.data import SpeedConfig
from shoal.errors import ConfigError
from shoal.report.paired import FEWEST, outside_interval
from shoal_labs.lab3.plan import ALIKE, BATCH_SIZE, DECIDING, DIVISIONS, SLOW, UNLIKE, partition_of, plan_for


def test_every_division_is_run_with_every_number_of_workers_and_the_deciding_ones_with_every_seed():
    plan = plan_for("4,2", quick=False, first_seed=7)
    runs = plan.runs()
    assert plan.workers == (2, 4)
    for division in DIVISIONS:
        for workers in plan.workers:
            seeds = plan.seeds if division in DECIDING and workers == 4 else (7, 8, 9)
            configs = [runs[f"{division}-{workers}w-seed{seed}"] for seed in seeds]
            assert {config.partition for config in configs} == {partition_of(division, workers)}
            assert {config.launch.workers for config in configs} == {workers}
    assert {*ALIKE, *UNLIKE} == set(DIVISIONS)


@pytest.mark.parametrize("quick", [True, False])
def test_what_is_compared_in_pairs_has_enough_of_them(quick):
    size = plan_for("2,4", quick, first_seed=0).size
    assert FEWEST + 2 <= size.seeds < 11  # `no_worse` needs an interval with two equal sides: Student's t
    assert outside_interval(size.rounds) > 0
    assert outside_interval(size.most * size.rounds) > 1  # one round may be disturbed
    assert size.few_rounds > FEWEST + 2


def test_all_of_them_are_the_same_task_as_one_machines():
    runs = plan_for("2", quick=False, first_seed=0).runs()
    single = runs["single-seed0"]
    for name, config in runs.items():
        assert config.data == single.data
        assert config.train.batch_size == single.train.batch_size
        if not name.startswith("equal-"):
            assert config.train.epochs == single.train.epochs
            assert config.optimizer == single.optimizer


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_on_a_gpu_one_machine_computes_in_the_parts_of_the_workers(workers):
    plan = replace(plan_for(str(workers), quick=True, first_seed=0), device="cuda")
    alone, together = plan.equal(workers)
    assert alone.train.batch_size == together.train.batch_size == workers * alone.train.micro_batch
    assert alone.launch.workers == 1
    assert {alone.device, together.device} == {"cuda"}
    runs = plan.runs()
    assert runs[plan.equal_single(workers)] == alone
    assert runs[f"equal-global-{workers}w"] == together


def test_on_a_cpu_all_numbers_of_workers_are_compared_with_one_plain_run():
    plan = plan_for("2,3", quick=True, first_seed=0)
    assert plan.equal_single(2) == plan.equal_single(3) == "equal-single"
    assert plan.equal(2)[0] == plan.equal(3)[0]
    assert plan.equal(3)[0].train.micro_batch > BATCH_SIZE


def test_parts_by_speed_know_the_slow_worker():
    partition = partition_of("speed", 3)
    assert isinstance(partition, SpeedConfig)
    assert min(partition.speeds) == partition.speeds[SLOW]
    slow = plan_for("3", quick=True, first_seed=0).timed(3)["timed-speed-3w"]
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


def test_one_process_is_timed_in_the_same_rounds():
    plan = plan_for("2,4", quick=False, first_seed=0)
    timed = plan.timed(4)
    assert next(iter(timed.values())).launch.launcher == "processes"
    assert timed["timed-all-cores-4w"].threads == plan.cores
    assert timed["timed-one-core-4w"].threads == 1
    assert {config.train.steps for config in timed.values()} == {plan.size.timed_steps}
