import pytest
import torch

from shoal.config.sections.data import SyntheticConfig
from shoal.data.division import Global
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal_labs.lab3.plan import PARTITIONS, QUICK, Lab3Plan
from shoal_labs.lab3.seen import check_divisions, lists_of, refusals, seen_in

DATA = SyntheticConfig(samples=300, validation=0.2)
PLAN = Lab3Plan((3,), QUICK, data=DATA)


def test_partitions_see_everything_once_and_sampling_does_not():
    data = load(DATA)
    for division in PARTITIONS:
        assert seen_in(PLAN, data, division, 3, 0).once
    sampling = seen_in(PLAN, data, "sampling", 3, 0)
    assert not sampling.once
    assert 0.55 < sampling.first.coverage < 0.7
    assert list(sampling.coverage) == sorted(sampling.coverage)
    label, random = (seen_in(PLAN, data, name, 3, 0) for name in ("label", "random"))
    assert label.skew > 0.5 > random.skew
    assert sum(seen_in(PLAN, data, "speed", 3, 0).first.per_worker) == 240


def test_lists_are_what_the_steps_take():
    division = Global(100, seed=0, size=3)
    lists = lists_of(division, epoch=1)
    assert torch.cat(lists).sort().values.equal(torch.arange(100))
    assert lists[0][:22].equal(division.step(1, 0, 64, 0))


def test_a_division_that_the_data_do_not_allow_is_refused_before_anything_runs():
    with pytest.raises(ConfigError, match="8 samples are too few for 10 workers"):
        check_divisions(Lab3Plan((10,), QUICK, data=SyntheticConfig(samples=8)))


@pytest.mark.parametrize("workers", [2, 4])
def test_the_wrong_samplers_are_refused_as_partitions(workers):
    said = refusals(workers, 1000)
    assert f"assigns {1000 - 1000 // workers} of 1,000 samples to no worker" in said["range"]
    assert "samples to no worker" in said["rank-seed"]
