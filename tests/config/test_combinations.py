"""The table of combinations: what it refuses is refused, what it does not is accepted, and the page shows it."""

import re
import runpy
from pathlib import Path

import pytest

from shoal.config.combinations import COMBINATIONS, NEEDS, is_refused
from shoal.config.feature import settings_of
from shoal.config.features import FEATURES, FOUND
from shoal.config.read import read
from shoal.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAIRS = [(owner, other) for owner, row in COMBINATIONS.items() for other in row]


def of_strategy(name):
    """How much a feature says about the strategy: of two, the flags of the one that says more are last."""
    feature = FEATURES[name]
    is_whole = feature.path in ("sync.name", "pipeline", "tensor")
    return 2 if is_whole else feature.path.startswith(("sync.", "mesh"))


def config_of(*names):
    """A run that asks for these features."""
    flags = " ".join(FEATURES[name].flags for name in sorted(names, key=of_strategy))
    axes = dict.fromkeys(re.findall(r"--mesh (\S+)", flags))
    if axes:
        flags = re.sub(r"--mesh \S+|--workers \d+", "", flags) + f" --mesh {','.join(axes)}"
    if "strategy single" in names and "--workers" not in names:
        flags = flags.replace("--workers 2", "")
    config = read(None, flags.split())
    config.check_found(*(name for name in names if name in FOUND))
    return config


def refusal(*names):
    """Why a run with these features is refused; empty if it is not."""
    try:
        config_of(*names)
    except ConfigError as error:
        return error.message
    return ""


@pytest.mark.parametrize(("owner", "other"), PAIRS)
def test_a_pair_of_the_table_is_refused_with_the_fix(owner, other):
    with pytest.raises(ConfigError) as refused:
        config_of(owner, other)
    assert "does not support" in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.hint


ASK_FOR_MORE = {("strategy server", "--exchange"), ("strategy server", "--launcher threads on a GPU")}
"""Examples whose exchange or device the strategy refuses, though it accepts others."""


@pytest.mark.parametrize("strategy", [name for name in FEATURES if of_strategy(name) == 2])
def test_a_strategy_accepts_every_feature_that_the_table_does_not_refuse(strategy):
    for name in FEATURES:
        if is_refused(strategy, name) or (strategy, name) in ASK_FOR_MORE:
            continue
        said = refusal(strategy, name)
        assert not said or "has no setting" in said, name


WITHOUT_NEED = {
    "--reduction invariant": "--reduction invariant",
    "--memory.parameters": "--memory.parameters bf16 --precision tf32",
    "--pipeline.cut": "--pipeline.cut fc1",
    "--tensor.plan": "--tensor.plan plan.toml",
    "--prune.rewind": "--prune magnitude --prune.end 0 --prune.rewind 0",
    "--stop.patience": "--stop.patience 2",
}


@pytest.mark.parametrize("name", NEEDS)
def test_what_needs_another_setting_is_refused_without_it(name):
    with pytest.raises(ConfigError, match=f"needs {NEEDS[name][0]}") as refused:
        read(None, WITHOUT_NEED[name].split())
    assert refused.value.hint


@pytest.mark.parametrize("name", FEATURES)
def test_an_example_asks_for_its_feature_and_for_the_wider_one(name):
    config = config_of(name)
    settings = settings_of(config, config.axes) | {name: name in FOUND}
    while name:
        assert FEATURES[name].shown(settings)
        name = FEATURES[name].part_of


def test_features_are_known_and_a_pair_stands_once():
    assert {name for pair in PAIRS for name in pair} <= FEATURES.keys()
    assert not {(other, owner) for owner, other in PAIRS} & {*PAIRS}


def test_the_strategy_that_fixes_name_refuses_nothing():
    assert not any(is_refused("strategy ddp", name) for name in FEATURES)


def test_the_page_is_the_table():
    page = runpy.run_path(str(ROOT / "tools" / "combinations.py"))["page"]()
    assert (ROOT / "docs/en/combinations.md").read_text() == page + "\n", (
        "python tools/combinations.py > docs/en/combinations.md"
    )
