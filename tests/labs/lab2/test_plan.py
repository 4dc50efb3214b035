import pytest

from shoal.errors import ConfigError
from shoal.report.paired import FEWEST, outside_interval
from shoal.strategies.exchange.build import check_exchange
from shoal_labs.lab2.averaging import ALL, exchange_of
from shoal_labs.lab2.plan import CONDITIONS, FULL, QUICK, plan_for


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("workers", [2, 4])
def test_every_run_can_be_had(workers, quick):
    runs = plan_for(workers, quick, first_seed=3).runs()
    for config in runs.values():
        assert config.seed >= 3
        check_exchange(config.exchange, config.launch.workers)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_rotation_is_what_the_stages_say(condition):
    plan = plan_for(2, quick=False, first_seed=0)
    rotation = plan.rotation(condition).names
    config = plan.runs()[f"rotate-{condition}"]
    stages = config.exchange.plan
    for step, branch in enumerate(rotation):
        fraction = step / config.train.steps
        current = [stage for stage in stages if float(stage.partition("=")[0]) <= fraction][-1]
        assert current.partition("=")[2] == exchange_of(branch)


@pytest.mark.parametrize("size", [FULL, QUICK])
def test_every_branch_has_steps_that_count_in_every_condition(size):
    assert set(size.rounds) == set(CONDITIONS)
    assert min(size.rounds.values()) * (size.branch_steps - 1) >= 2


@pytest.mark.parametrize("size", [FULL, QUICK])
def test_results_are_compared_by_students_t(size):
    assert FEWEST + 2 <= size.seeds <= size.close_seeds < 11
    assert size.turn_rounds >= FEWEST + 2
    assert outside_interval(size.contest_rounds) > 1  # one round may be disturbed


def test_all_branches_have_as_many_steps():
    rotation = plan_for(2, quick=True, first_seed=0).rotation("even").names
    assert len({rotation.count(branch) for branch in ALL}) == 1


def test_equal_runs_differ_in_one_thing():
    runs = plan_for(4, quick=False, first_seed=0).runs()
    total, mean = runs["equal-sum"], runs["equal-mean"]
    assert total.optimizer.lr * 4 == mean.optimizer.lr
    assert total.optimizer.momentum == mean.optimizer.momentum
    assert (total.sync.combine, mean.sync.combine) == ("sum", "mean")


def test_one_worker_alone_has_nothing_to_aggregate():
    with pytest.raises(ConfigError, match="at least 2 workers, got --workers 1"):
        plan_for(1, quick=True, first_seed=0)
