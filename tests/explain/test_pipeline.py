"""Explanations of schedules: what is counted, and what is refused."""

import pytest

from shoal.errors import ConfigError
from shoal.explain.pipeline import explain_schedule
from shoal.strategies.pipeline.schedules import SCHEDULES


@pytest.mark.parametrize("name", SCHEDULES)
def test_counted_figures_agree_with_the_formula(name):
    (counted, formula, *_) = explain_schedule(name, 4, 8).facts()["bubble"]
    assert counted.split(" of ")[0] == formula.rpartition("= ")[2]


def test_many_stages_are_summarised():
    facts = explain_schedule("1f1b", 12, 16).facts()
    assert facts["live activations"][0] == "at most 12 on stage 0, down to 1 on stage 11"
    assert explain_schedule("async", 1, 3).facts()["weight versions"] == ["at most 1 on the only stage"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("1f1", 2, 2), "did you mean '1f1b'"),
        (("1f1b", 0, 2), "explain takes 1 to 32 stages, not 0"),
        (("1f1b", 33, 2), "explain takes 1 to 32 stages, not 33"),
        (("1f1b", 2, 0), "explain takes 1 to 64 micro-batches, not 0"),
        (("1f1b", 2, 65), "explain takes 1 to 64 micro-batches, not 65"),
    ],
)
def test_sizes_that_cannot_be_drawn_are_refused(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        explain_schedule(*arguments)
