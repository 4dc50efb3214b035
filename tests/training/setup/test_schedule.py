"""Schedules: pure functions of the step."""

import sys

import pytest

from shoal.config.sections.optimizer import ConstantConfig, CosineConfig, StepDecayConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.training.setup.schedule import factor


def test_warmup_rises_linearly_and_never_from_zero():
    at = factor(ConstantConfig(warmup=3), total_steps=6)
    assert [at(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_begins_full_passes_the_middle_and_ends_at_its_floor():
    at = factor(CosineConfig(floor=0.2), total_steps=11)
    assert at(0) == 1.0
    assert at(5) == pytest.approx(0.6)
    assert at(10) == pytest.approx(0.2)


def test_cosine_counts_from_the_end_of_the_warmup():
    at = factor(CosineConfig(warmup=2), total_steps=5)
    assert [at(0), at(1), at(2), at(4)] == pytest.approx([1 / 3, 2 / 3, 1.0, 0.0])


def test_decay_by_steps():
    at = factor(StepDecayConfig(every=3, factor=0.1), total_steps=9)
    assert [at(step) for step in (0, 2, 3, 6)] == pytest.approx([1, 1, 0.1, 0.01])


def test_a_run_of_one_step_is_no_special_case():
    assert factor(CosineConfig(), total_steps=1)(0) == 1.0


def test_a_function_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_schedules.py").write_text(
        "def falling(step, total_steps, power=1):\n    return (1 - step / total_steps) ** power\n"
        "def negative(step, total_steps):\n    return -1\n"
        "def nothing():\n    return 1.0\n"
    )
    monkeypatch.chdir(tmp_path)
    at = factor(Custom("own_schedules:falling", (("power", 2),)), total_steps=4)
    assert [at(step) for step in range(4)] == [1.0, 0.5625, 0.25, 0.0625]
    with pytest.raises(ConfigError, match="schedule own_schedules:negative returned -1 for step 0 of 4"):
        factor(Custom("own_schedules:negative"), total_steps=4)
    with pytest.raises(ConfigError, match="schedule own_schedules:nothing .* cannot take 2 arguments"):
        factor(Custom("own_schedules:nothing"), total_steps=4)
    sys.modules.pop("own_schedules")
