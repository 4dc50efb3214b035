"""Kinds of values, checked and read the same way wherever they come from."""

from typing import Annotated, Literal

import pytest

from shoal.config.conditions import Link
from shoal.config.kinds import AtLeast, Below, check, describe, parse
from shoal.config.schema import RunConfig
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.model import MlpConfig
from shoal.config.sections.train import TrainConfig
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "value", "accepted"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (bool, True, True),
        (tuple[int, ...], [1, 2], (1, 2)),
        (int | None, None, None),
        (Annotated[int, AtLeast(1)] | Literal["all"], "all", "all"),
    ],
)
def test_values_of_the_kind_are_taken(kind, value, accepted):
    taken = check(kind, value, "here")
    assert taken == accepted
    assert type(taken) is type(accepted)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, True),
        (int, 3.0),
        (float, "3"),
        (float, float("nan")),
        (bool, 1),
        (tuple[int, ...], [1, "2"]),
        (tuple[int, ...], 3),
        (Annotated[float, AtLeast(0), Below(1)], 1.0),
        (Literal["a", "b"], "c"),
    ],
)
def test_other_values_are_refused(kind, value):
    with pytest.raises(ConfigError, match="here"):
        check(kind, value, "here")


def test_python_values_are_checked_like_flags():
    with pytest.raises(ConfigError, match=r"TrainConfig\.epochs: expected an integer ≥ 1, got 0"):
        TrainConfig(epochs=0)
    assert MlpConfig(hidden=[3, 4]).hidden == (3, 4)  # hashable, whatever the caller gave


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (int, 10**20, "expected an integer, got 100000000000000000000, which does not fit in 64 bits"),
        (float, 10**400, "which does not fit in 64 bits"),
        (Annotated[float, AtLeast(0)], float("inf"), "a number ≥ 0, got inf, which is not finite"),
        (tuple[int, ...], (1, "x"), "a list of integers, got 1,x$"),
        (tuple[int, ...], "", "a list of integers, got ''$"),
    ],
)
def test_a_refusal_shows_the_value_as_it_was_written_and_why(kind, value, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check(kind, value, "here")


def test_one_item_of_a_repeated_setting_needs_no_brackets():
    assert LaunchConfig(workers=2, link="all:1gbit").link == (Link.from_text("all:1gbit"),)


def test_text_that_means_nothing_is_left_to_the_check():
    assert parse(int, "x") == "x"
    assert parse(bool, "yes") == "yes"
    assert parse(Annotated[int, AtLeast(1)] | None, "-3") == -3


def test_kinds_have_words():
    assert describe(tuple[int, ...]) == "a list of integers"
    assert describe(float | None) == "a number or none"


@pytest.mark.parametrize(
    ("section", "value", "sentence"),
    [
        (
            "train",
            {"epochs": 2},
            r"RunConfig\.train: expected TrainConfig, got a dict\n.*train=TrainConfig\(\)",
        ),
        ("model", object(), r"RunConfig\.model: expected LinearConfig, .* or Custom, got a object"),
        ("model", "mlp", r"RunConfig\.model: expected .*, got a str"),
        ("optimizer", MlpConfig(), r"RunConfig\.optimizer: expected .*, got a MlpConfig"),
        ("launch", None, r"RunConfig\.launch: expected LaunchConfig, got a NoneType"),
    ],
)
def test_a_section_made_in_python_is_checked_too(section, value, sentence):
    with pytest.raises(ConfigError, match=sentence):
        RunConfig(**{section: value})
