import pytest

from shoal.errors import ConfigError
from shoal_labs.lab4.plan import SCHEDULES, plan_for


def test_every_way_is_the_same_training_as_one_machines():
    runs = plan_for(3, quick=False, seed=7).runs()
    single = runs["single"]
    for name, config in runs.items():
        assert (config.data, config.model, config.optimizer) == (single.data, single.model, single.optimizer)
        assert (config.seed, config.train.batch_size) == (7, single.train.batch_size)
        assert config.threads == 1 or name == "all-cores"
        assert config.checkpoint.first_step
        assert config.output.trace


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_every_schedule_has_a_stage_on_every_worker(workers):
    plan = plan_for(workers, quick=True, seed=0)
    runs = plan.runs()
    for name in SCHEDULES:
        assert runs[name].mesh == f"pipeline={workers}"
        assert runs[name].pipeline.schedule == name
    assert {runs[name].pipeline.microbatches for name in plan.counted().values()} == {1, 2, 4, 8}
    assert [runs[name].pipeline.cut for name in plan.cuts().values()] == [("conv2",), ("fc1",), ("fc2",)]
    assert runs["rpc"].launch.workers == runs["tensor"].launch.workers == workers


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_numbers_of_workers_that_the_lab_cannot_use(workers):
    with pytest.raises(ConfigError, match=f"2 to 4 workers.* got --workers {workers}"):
        plan_for(workers, quick=True, seed=0)
