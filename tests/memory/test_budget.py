"""The choice of settings for a budget: the fastest that fit, what computes the same first."""

from dataclasses import replace

import pytest

from shoal.config.read import read
from shoal.errors import ConfigError
from shoal.memory.budget import HEAP_MARGIN, MARGIN, within_budget
from shoal.memory.trial import Trial
from shoal.strategies.memory import ACTIVATIONS

TEXT = "--model transformer --model.layers 4 --data synthetic --data.task text --device cpu --batch-size 32"


def parts(config):
    """A model of memory: 100 MB of activations, and 100 MB of everything else."""
    memory, micro_batches = config.memory, -(-32 // min(32, config.train.micro_batch))
    left = 1.0 / micro_batches
    if memory.checkpoint:
        left *= 1 - 0.8 / memory.checkpoint
    if memory.offload == "file":
        left *= 0.1
    return {ACTIVATIONS: int(100e6 * left), "rest": int(100e6)}


def trying(config):
    memory, micro_batches = config.memory, -(-32 // min(32, config.train.micro_batch))
    seconds = 1.0 + 0.02 * (micro_batches - 1)
    seconds += 0.3 / memory.checkpoint if memory.checkpoint else 0.0
    seconds += 0.5 if memory.offload == "file" else 0.0
    seconds += 0.4 if memory.return_freed else 0.0
    return Trial(sum(parts(config).values()), seconds)


def trying_without_checkpoints(config):
    if config.memory.checkpoint:
        raise ConfigError(f"every {config.memory.checkpoint}: a block writes into its input")
    return trying(config)


def chosen(budget, flags="", trying=trying):
    return within_budget(read(None, f"{TEXT} --memory.budget {budget} {flags}".split()), trying, parts)


def test_a_run_that_fits_stays_as_it_is():
    choice = chosen("310MB")
    assert choice.variant.flags == ""
    assert choice.reason == "the run fits in 310.0 MB as it is: 200.0 MB at the peak"


@pytest.mark.parametrize(
    ("budget", "flags"),
    [("250MB", "--micro-batch 16"), ("200MB", "--micro-batch 8"), ("175MB", "--micro-batch 4")],
)
def test_the_fastest_that_fits_is_taken(budget, flags):
    choice = chosen(budget)
    assert choice.variant.flags == flags
    assert choice.trial.peak * HEAP_MARGIN <= choice.budget
    assert f"{flags}: " in choice.reason
    assert (
        f"× the time of a step, the fastest of {choice.num_tried} tried settings that fits in"
        in choice.reason
    )


def test_a_time_on_a_busy_machine_is_not_told():
    choice = chosen("200MB")
    busy = replace(choice, plain=choice.plain._replace(was_delayed=True))
    assert "the time of a step" in choice.reason
    assert "the time of a step" not in busy.reason
    assert ", the fastest of" in busy.reason


def test_a_heap_that_keeps_freed_memory_has_room_to_grow():
    """Off-loading and returning freed memory need 1.05 times their peak, all others 1.5 times."""
    choice = chosen("140MB", "--engine tape")  # which supports neither checkpointing nor off-loading
    assert "--memory.return_freed" in choice.variant.settings
    assert choice.trial.peak * MARGIN <= choice.budget < choice.trial.peak * HEAP_MARGIN


def test_techniques_are_combined_where_one_is_not_enough():
    choice = chosen("107.5MB")
    assert len(choice.variant.techniques) > 1
    assert choice.trial.peak * MARGIN <= 107.5e6


def test_the_config_has_the_settings_that_were_chosen():
    config = chosen("120MB", "--micro-batch 8 --reduction invariant").variant.config
    assert config.memory.checkpoint or config.memory.offload == "file"
    assert config.train.micro_batch == 8
    assert config.memory.budget == "120MB"


def test_a_budget_that_nothing_fits_names_the_smallest_that_would_do():
    with pytest.raises(
        ConfigError, match="--memory.budget 50MB is too small: the smallest that would do is"
    ) as error:
        chosen("50MB")
    smallest = str(error.value).partition("would do is ")[2].partition("MB")[0]
    assert 100 < int(smallest) < 125
    assert chosen(f"{smallest}MB").trial.peak * MARGIN <= int(smallest) * 1e6


def test_what_the_model_refuses_is_named():
    text = "left out: --memory.checkpoint 2, --memory.checkpoint 1 (every 2: a block writes into its input)"
    flags = "--micro-batch 8 --reduction invariant"
    choice = chosen("175MB", flags, trying_without_checkpoints)
    assert "checkpoint" not in choice.variant.flags
    assert choice.reason.endswith(f"; {text}")
    with pytest.raises(ConfigError, match="is too small") as error:
        chosen("50MB", flags, trying_without_checkpoints)
    assert "; left out: --memory.checkpoint" in str(error.value)
    assert "left out" not in chosen("310MB", flags, trying_without_checkpoints).reason


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ConfigError, match="does not support --launcher threads"):
        chosen("100MB", "--strategy ddp --workers 2 --launcher threads")
    with pytest.raises(ConfigError, match="a batch of the whole training set cannot be tried"):
        within_budget(read(None, ["--optimizer", "gd", "--memory.budget", "100MB"]), trying)
