"""Every name of every table has a row, whose files exist and whose command runs."""

import shlex
from importlib import resources

import pytest

from shoal.codecs.build import CODECS
from shoal.comm.algorithms import ALGORITHMS
from shoal.config.read import read
from shoal.config.sections.sync import STRATEGIES
from shoal.errors import ConfigError
from shoal.explain.names import KINDS, all_rows, row_of
from shoal.strategies.exchange.rules import ROBUST
from shoal.strategies.pipeline.schedules import SCHEDULES

TABLES = {
    "strategy": STRATEGIES,
    "codec": CODECS,
    "rule": ROBUST,
    "schedule": SCHEDULES,
    "algorithm": ALGORITHMS,
}


def test_rows_and_names_are_those_of_the_tables():
    assert {kind: set(table.names) for kind, table in KINDS.items()} == {
        kind: set(names) for kind, names in TABLES.items()
    }
    rows = [(row.kind, row.name) for row in all_rows()]
    assert sorted(rows) == sorted((kind, name) for kind, names in TABLES.items() for name in names)
    assert len({name for _, name in rows}) == len(rows), "a name has one meaning"


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: row.name)
def test_a_row_is_whole_and_its_command_is_valid(row):
    assert all([row.step, row.use, row.no_use, row.result])
    assert bool(row.what) != (row.kind in ("schedule", "algorithm"))
    assert bool(row.read) == bool(row.cases) == (row.kind == "strategy")
    assert bool(row.time) != bool(row.schedule) or row.kind != "strategy"
    assert all((resources.files("shoal") / path).is_file() for path in row.read)
    shoal, train, recipe, *flags = shlex.split(row.to_try)
    assert (shoal, train) == ("shoal", "train")
    config = read(recipe, flags)
    found = {
        "strategy": config.strategy,
        "codec": getattr(config.exchange, "codec", ""),
        "rule": getattr(config.exchange, "rule", ""),
        "schedule": config.pipeline.schedule,
        "algorithm": getattr(config.exchange, "algorithm", ""),
    }
    assert found[row.kind] == row.name


def test_a_name_may_be_spelled_as_settings_spell_it():
    assert [row_of(name).name for name in ("by:ring", "robust:krum", "compressed:topk")] == [
        "ring",
        "krum",
        "topk",
    ]
    with pytest.raises(ConfigError, match="did you mean 'onecopy'"):
        row_of("one-copi")
