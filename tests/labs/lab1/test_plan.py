import pytest

from shoal.config.sections.data import DigitsConfig
from shoal.config.sections.optimizer import GdConfig
from shoal_labs.lab1.plan import FULL, NAMES, QUICK, QUICK_RATES, RATES, plan_for

DIGITS = DigitsConfig(validation=0.1)


@pytest.mark.parametrize("rates", [RATES, QUICK_RATES])
def test_every_optimizer_gets_as_many_candidates(rates):
    assert len({len(rates[name]) for name in NAMES}) == 1


@pytest.mark.parametrize("size", [QUICK, *FULL.values()])
def test_the_search_gets_the_same_part_of_every_budget(size):
    assert size.gd_passes % size.sweep_part == 0
    assert size.stochastic_passes % size.sweep_part == 0


def test_gd_takes_the_whole_set_and_the_code_that_is_shown_is_the_code_that_runs():
    plan = plan_for(DIGITS, quick=False, first_seed=5)
    configs = {name: plan.config(name, 0.1, 5, plan.passes(name), test=True) for name in NAMES}
    assert isinstance(configs["gd"].optimizer, GdConfig)
    assert configs["gd"].train.batch_size == "all"
    assert configs["gd"].train.epochs == 40
    assert all(config.optimizer.fast is False for config in configs.values())
    assert plan.seeds == (5, 6, 7, 8, 9)
