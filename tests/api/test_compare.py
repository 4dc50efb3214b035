"""`shoal.compare`: a recipe by several strategies, or finished runs."""

import importlib
import json

import pytest
from made_runs import DDP, write_run

import shoal
from shoal.errors import ConfigError

RECIPE = """
flags = "--model mlp --model.hidden 8 --data.samples 200 --steps 4 --threads 1 --device cpu"
[variants]
single = ""
ddp = "--strategy ddp --workers 2 --launcher threads"
"""


def test_finished_runs_are_rows_and_a_verdict(tmp_path, without_figures):
    runs = [
        write_run(tmp_path / "one", "--threads 1"),
        write_run(tmp_path / "two", DDP, ranks=((9, 0.5, 0),) * 2),
    ]
    found = shoal.compare(*runs, out=tmp_path / "page")
    assert [(row["name"], row["workers"]) for row in found.runs] == [("one", 1), ("two", 2)]
    assert found.remarks
    assert found.page.exists()
    assert "one, two" in repr(found)
    json.dumps(found.runs)


@pytest.mark.long
def test_a_recipe_is_trained_by_each_variant(tmp_path, without_figures):
    recipe = tmp_path / "both.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    found = shoal.compare(recipe, out=tmp_path / "page", progress=False, seed=3)
    assert [row["name"] for row in found.runs] == ["single", "ddp"]
    assert "seed = 3" in (tmp_path / "page/runs/ddp/config.toml").read_text(encoding="utf-8")
    again = shoal.compare(recipe, out=tmp_path / "again", runs=tmp_path / "page", progress=False, seed=3)
    assert [row["weights_sha256"] for row in again.runs] == [row["weights_sha256"] for row in found.runs]


@pytest.mark.parametrize(
    ("recipes", "settings", "sentence"),
    [
        ((), {}, "needs a recipe"),
        (("quickstar",), {}, "did you mean 'quickstart'"),
        (("quickstart",), {"strategy": "ddp"}, "what a comparison compares"),
        (("runs/none",), {}, "no run folder"),
    ],
)
def test_what_is_wrong_is_named(recipes, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        shoal.compare(*recipes, **settings)


def test_a_folder_of_the_package_does_not_hide_the_function_of_its_name():
    for name in ("compare", "memory", "prune", "report"):
        importlib.import_module(f"shoal.{name}")
        assert getattr(shoal, name) is getattr(importlib.import_module(shoal._LAZY[name]), name)
