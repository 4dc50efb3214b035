"""From settings to an exchange, and everything that is refused before a worker is started."""

import pytest

from shoal.comm.algorithms import ALGORITHMS, ring
from shoal.config.read import read
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.exchange import AllReduceConfig, ByConfig, RobustConfig, StagesConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.strategies.exchange.build import BUILDERS, build_exchange, check_exchange
from shoal.strategies.exchange.exchange import AllReduce, By
from shoal.strategies.exchange.rules import ROBUST
from shoal.strategies.strategy import TrainingClock


def exchange_of(*flags):
    return read(None, ["--strategy", "naive", *flags]).exchange


def test_each_name_gives_its_exchange():
    assert build_exchange(exchange_of(), 2, TrainingClock()) == AllReduce()
    assert build_exchange(exchange_of("--exchange", "by:ring"), 2, TrainingClock()) == By(ring)
    robust = build_exchange(
        exchange_of("--exchange", "robust:krum", "--exchange.bad", "2"), 7, TrainingClock()
    )
    assert (robust.rule, robust.bad) == (ROBUST["krum"], 2)


def test_the_schema_and_the_tables_know_the_same_names():
    for algorithm in ALGORITHMS:
        check_exchange(ByConfig(algorithm=algorithm), 2)
    for rule in ROBUST:
        check_exchange(RobustConfig(rule=rule), 5)
    names = {
        config().name for config in (AllReduceConfig, ByConfig, RobustConfig, CompressedConfig, StagesConfig)
    }
    assert names == set(BUILDERS)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--exchange al_reduce", "did you mean 'all_reduce'?"),
        ("--exchange by:rng", "did you mean 'ring'?"),
        ("--exchange robust:medan", "did you mean 'median'?"),
        ("--exchange robust:median --exchange.bad -1", "expected an integer ≥ 0, got -1"),
        ("--exchange stages:0.5=all_reduce", "must start at 0 and increase, got 0.5"),
        ("--exchange stages:0=all_reduce,0.5=by:rng", "did you mean 'ring'?"),
        ("--exchange stages:0=all_reduce,2=by:ring", "expected a stage START=EXCHANGE with 0 ≤ START < 1"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(flags, sentence):
    with pytest.raises(ConfigError, match=sentence):
        exchange_of(*flags.split())


@pytest.mark.parametrize(
    ("config", "size", "sentence"),
    [
        (
            RobustConfig(rule="median"),
            2,
            "median tolerates 1 bad worker only with at least 3 workers; you have 2",
        ),
        (
            RobustConfig(rule="krum"),
            4,
            "krum tolerates 1 bad worker only with at least 5 workers; you have 4",
        ),
        (StagesConfig(plan=("0=all_reduce", "0.9=robust:krum")), 4, "only with at least 5 workers"),
        (Custom(name="no_such_module:exchange"), 2, "there is no module 'no_such_module'"),
        (Custom(name="math:sine"), 2, "unknown name in module math 'sine'"),
        (StagesConfig(plan=("0=all_reduce", "0.5=math:sine")), 2, "unknown name in module math 'sine'"),
    ],
)
def test_what_the_workers_cannot_have_is_refused(config, size, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_exchange(config, size)


def test_the_exchange_changes_with_the_stage_of_training():
    now = TrainingClock(total_steps=10)
    staged = build_exchange(StagesConfig(plan=("0=all_reduce", "0.3=by:ring", "0.8=robust:median")), 3, now)
    used = []
    for now.step in range(10):
        used.append(type(staged.current).__name__)
    assert used == ["AllReduce"] * 3 + ["By"] * 5 + ["Robust"] * 2
    now.step = 7
    assert staged.tolerates == 0
    now.step = 8
    assert staged.tolerates == 1, "a stage that tolerates a bad worker says so"
