"""The keywords that editors complete follow from the settings."""

import runpy
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import shoal
from shoal.api import keywords
from shoal.api.settings import config_of

ROOT = Path(__file__).parents[2]


def test_the_file_is_made_from_the_settings():
    made = runpy.run_path(str(ROOT / "tools" / "keywords.py"))["module"]()
    committed = (ROOT / "src/shoal/api/keywords.py").read_text(encoding="utf-8")
    assert committed == made, "python tools/keywords.py > src/shoal/api/keywords.py"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (shoal.train, keywords.Settings),
        (shoal.fit, keywords.FitSettings),
        (shoal.compare, keywords.Settings),
        (shoal.memory, keywords.Settings),
        (shoal.evaluate, keywords.EvaluateSettings),
        (shoal.prune, keywords.PruneSettings),
    ],
)
def test_a_function_takes_the_keywords_beside_its_own(function, expected):
    hints = get_type_hints(function)
    assert get_args(hints["settings"]) == (expected,)
    assert not hints.keys() & get_type_hints(expected).keys(), "a keyword has one meaning"


def test_a_strategy_with_its_settings_is_a_table():
    config = config_of(None, {"strategy": {"name": "zero", "stage": 3}, "workers": 2})
    assert (config.strategy, getattr(config.sync, "stage", None)) == ("zero", 3)
