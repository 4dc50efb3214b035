"""A run's settings: defaults that follow from other settings, and the names that programs import."""

import re
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_args

import pytest

from shoal.config import schema
from shoal.config.choices import by_name, kinds_of
from shoal.config.read import read
from shoal.config.sections import optimizer, values
from shoal.config.sections.sync import STRATEGIES
from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedules import SCHEDULES


def test_invariant_bits_set_what_decides_them():
    flags = "--reduction invariant --micro-batch 8"
    made = read(None, f"{flags} --strategy zero --workers 4 --optimizer sgd".split())
    assert (made.threads, made.device, made.optimizer.fast) == (1, "cpu", False)
    assert read(None, f"{flags} --threads 2".split()).threads == 2


def test_programs_may_import_every_section_from_the_schema():
    assert schema.AdamWConfig is optimizer.AdamWConfig
    assert schema.Custom is values.Custom
    with pytest.raises(AttributeError, match="has no attribute 'AdaConfig'"):
        _ = schema.AdaConfig


def test_threads_on_the_gpu_that_auto_found_are_refused_where_backward_communicates():
    flags = "--workers 2 --launcher threads --strategy"
    tensor, ddp = (read(None, [*flags.split(), name]) for name in ("tensor", "ddp"))
    with pytest.raises(ConfigError, match="layout tensor does not support --launcher threads on a GPU"):
        tensor.check_device("cuda")
    tensor.check_device("cpu")
    ddp.check_device("cuda")


SECTIONS = {
    name: tuple(each for each in get_args(kinds_of(schema.RunConfig)[name]) if is_dataclass(each))
    for name in ("model", "loss", "optimizer", "sync", "prune", "partition", "schedule")
}
LISTED = {
    **{f"`--{name}`": by_name(choices) for name, choices in SECTIONS.items()},
    "`--pipeline.schedule`": SCHEDULES,
    "strategy": [name for name, (layout, _) in STRATEGIES.items() if layout == "whole"],
}


@pytest.mark.parametrize(("row", "names"), LISTED.items(), ids=LISTED)
def test_the_pages_list_every_choice(row, names):
    """In the row of a setting; strategies have a table."""
    pages = Path(__file__).parents[2] / "docs/en"
    text = "".join((pages / page).read_text(encoding="utf-8") for page in ("train.md", "strategies.md"))
    pattern = r"^\| strategy \|.*?\n\n" if row == "strategy" else rf"^\| {row} \|.*?\n"
    (listed,) = re.findall(pattern, text, re.MULTILINE | re.DOTALL)
    assert [name for name in names if f"`{name}`" not in listed] == []
