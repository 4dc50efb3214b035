"""The search makes few trials where formulas are right, and finds what fits where they are wrong."""

import pytest

from shoal.config.read import read
from shoal.errors import ConfigError
from shoal.memory.budget import MARGIN, Search
from shoal.memory.trial import Trial
from shoal.strategies.memory import ACTIVATIONS

TEXT = "--model transformer --model.layers 4 --data synthetic --data.task text --device cpu --batch-size 32"
CONFIG = read(None, TEXT.split())
MB = 10**6


def left_of(config, by_offload=0.1):
    """The part of the activations that is left."""
    left = 1 / -(-32 // min(32, config.train.micro_batch))
    left *= 1 - 0.8 / config.memory.checkpoint if config.memory.checkpoint else 1
    return left * (by_offload if config.memory.offload == "file" else 1)


def parts(config, by_offload=0.1):
    state = 20 * MB if config.memory.state_bits == 8 else 80 * MB
    return {ACTIVATIONS: int(100 * MB * left_of(config, by_offload)), "state": state, "rest": 20 * MB}


def searched(budget_mb, formula=parts, above=0.0, refuses=lambda config: False):
    """A search in which peaks are higher than the formula by a part of the activations."""
    made = []

    def trying(config):
        made.append(config)
        if refuses(config):
            raise ConfigError("the model refuses it")
        peak = sum(parts(config).values()) + above * 100 * MB * (config != CONFIG)
        memory = config.memory
        seconds = 1 + 0.3 / (memory.checkpoint or 1000) + 0.4 * (memory.offload == "file")
        return Trial(int(peak), seconds + 0.5 * (memory.state_bits == 8) + 0.4 * memory.return_freed)

    search = Search(CONFIG, trying, formula)
    search.run(budget_mb * MB)
    return search, made


def test_a_run_that_fits_is_tried_once():
    _, made = searched(300, formula=lambda config: pytest.fail("a formula was not needed"))
    assert made == [CONFIG]


@pytest.mark.parametrize("budget_mb", [190, 160, 130])
def test_with_right_formulas_two_or_three_trials_are_enough(budget_mb):
    search, made = searched(budget_mb)
    assert search.fitting(budget_mb * MB)
    assert len(made) <= 3


def test_a_technique_that_saves_less_than_predicted_is_replaced_by_another():
    search, made = searched(150, above=0.15)
    assert search.fitting(150 * MB)
    assert len(made) <= 6


def test_what_computes_something_else_is_tried_only_if_nothing_else_fits():
    search, _ = searched(115)
    assert all(each.is_exact for each in search.tried)
    search, _ = searched(80)
    assert {each.is_exact for each in search.fitting(80 * MB)} == {False}


def test_a_budget_that_nothing_fits_ends_with_the_smallest():
    search, made = searched(20)
    smallest = min(trial.peak for trial in search.tried.values())
    assert smallest < 45 * MB
    assert not search.fitting(20 * MB)
    assert len(made) < 8


def test_without_formulas_each_technique_is_tried_alone():
    search, made = searched(150, formula=lambda config: None)
    assert search.fitting(150 * MB)
    assert {each.flags for each in search.singles if each.is_exact} <= {each.flags for each in search.tried}
    best = min(search.fitting(150 * MB), key=lambda each: search.tried[each].seconds)
    assert search.tried[best].peak * MARGIN <= 150 * MB
    assert len(made) == len(search.tried)


def test_a_component_that_is_not_known_saves_nothing():
    def formula(config):
        found = parts(config)
        return found | {ACTIVATIONS: None} if config.memory.checkpoint else found

    search, _ = searched(160, formula=formula)
    assert search.fitting(160 * MB)
    assert not any("checkpoint" in each.flags for each in search.tried)


@pytest.mark.parametrize("formula", [parts, lambda config: None])
def test_a_technique_that_the_model_refuses_is_left_out(formula):
    search, made = searched(160, formula, refuses=lambda config: config.memory.checkpoint > 0)
    assert search.fitting(160 * MB)
    assert not any("checkpointing" in each.techniques for each in search.tried)
    assert len(made) == len(search.tried) + len(search.refused)


def test_the_refused_part_of_a_combination_is_tried_once():
    search, made = searched(60, refuses=lambda config: config.memory.offload == "file")
    refused = [each.flags for each in search.refused]
    assert "--memory.offload file" in refused
    assert len(refused) == 2, "a combination, then that part of it"
    assert len(made) == len({*made})


def test_a_combination_that_is_refused_leaves_its_parts():
    def refuses(config):
        return config.memory.checkpoint > 0 and config.memory.offload == "file"

    search, _ = searched(80, refuses=refuses)
    assert search.fitting(80 * MB)
    assert not any(len(each.techniques) == 1 for each in search.refused)


def test_a_run_that_is_refused_as_it_is_ends_the_search():
    with pytest.raises(ConfigError, match="the model refuses it"):
        searched(160, refuses=lambda config: True)
