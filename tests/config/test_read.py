"""Recipes and flags: what a user writes, and the errors that a user gets."""

import pytest

from shoal.config.read import from_tree, merge, parse_toml, read, read_flags, read_recipe, shipped_recipes
from shoal.config.schema import RunConfig
from shoal.config.sections.model import MlpConfig
from shoal.config.sections.optimizer import AdamConfig, GdConfig, SgdConfig
from shoal.config.sections.train import TrainConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError


def test_no_recipe_and_no_flags_give_the_defaults():
    assert read(None, []) == RunConfig()


def test_short_and_dotted_flags_mean_the_same():
    assert read(None, ["--lr", "0.5", "--epochs=2"]) == read(
        None, ["--optimizer.lr=0.5", "--train.epochs", "2"]
    )


def test_a_flag_goes_over_the_recipe(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('seed = 3\n[optimizer]\nname = "sgd"\nlr = 0.25\nmomentum = 0.9\n')
    config = read(str(recipe), ["--lr", "0.5"])
    assert config.seed == 3
    assert config.optimizer == SgdConfig(lr=0.5, momentum=0.9)


def test_another_choice_replaces_the_section_of_the_recipe(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[optimizer]\nname = "sgd"\nlr = 0.25\nmomentum = 0.9\n')
    assert read(str(recipe), ["--optimizer", "adam"]).optimizer == AdamConfig()


def test_the_name_of_a_run_leaves_the_other_settings_of_its_output(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[output]\ndir = "elsewhere"\nname = "old"\n')
    output = read(str(recipe), ["--name", "new"]).output
    assert (output.dir, output.name) == ("elsewhere", "new")


def test_a_recipe_may_name_a_choice_in_one_word():
    assert from_tree({"model": "mlp"}).model == MlpConfig()
    assert from_tree(merge({"model": "mlp"}, read_flags(["--model.hidden", "8"]))).model == MlpConfig(
        hidden=(8,)
    )


def test_lists_switches_and_none():
    config = read(None, ["--model", "mlp", "--model.hidden", "12,3", "--trace", "--steps", "none"])
    assert config.model == MlpConfig(hidden=(12, 3))
    assert config.output.trace is True
    assert config.train.steps is None


def test_a_function_of_ones_own_keeps_its_options():
    config = read(None, ["--model", "nets.mine:tiny", "--model.width", "3", "--model.deep", "true"])
    assert config.model == Custom("nets.mine:tiny", (("deep", True), ("width", 3)))


def test_every_shipped_recipe_is_valid():
    assert shipped_recipes()
    for name in shipped_recipes():
        read(name, [])


def test_gd_takes_the_whole_training_set_and_nothing_else():
    assert read(None, ["--optimizer", "gd"]).train.batch_size == "all"
    assert read(None, []).train.batch_size == 64
    with pytest.raises(ConfigError, match="gd does not support --batch-size 8"):
        RunConfig(optimizer=GdConfig(), train=TrainConfig(batch_size=8))


def test_a_wrong_recipe_gets_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="unknown recipe 'quickstrat': did you mean 'quickstart'"):
        read_recipe("quickstrat")
    with pytest.raises(ConfigError, match="cannot read the recipe .*missing.toml: No such file"):
        read_recipe(str(tmp_path / "missing.toml"))
    with pytest.raises(ConfigError, match="not valid TOML"):
        parse_toml("[model", tmp_path)
    with pytest.raises(ConfigError, match="train is a section, not the value 3"):
        from_tree({"train": 3})
    with pytest.raises(ConfigError, match="unknown setting 'trian': did you mean 'train'"):
        from_tree({"trian": {}})
    with pytest.raises(ConfigError, match="cannot read the recipe x+: File name too long"):
        read_recipe("x" * 300)


@pytest.mark.parametrize(
    ("recipe", "flags", "sentence"),
    [
        ({"mesh": 3}, ["--strategy", "ddp"], "mesh: expected text, got 3"),
        ({"mesh": 3}, ["--workers", "2"], "mesh: expected text, got 3"),
        ({"pipeline": 3}, ["--mesh", "data=2"], "pipeline is a section, not the value 3"),
        ({"pipeline": "gpipe"}, ["--workers", "2"], "unknown setting 'pipeline.name'"),
        ({"launch": 3}, ["--mesh", "data=2"], "launch is a section, not the value 3"),
        ({"strategy": {"name": ["ddp"]}}, ["--lr", "1"], "unknown strategy"),
    ],
)
def test_flags_over_a_wrong_recipe_get_one_sentence(recipe, flags, sentence):
    with pytest.raises(ConfigError, match=sentence):
        from_tree(merge(recipe, read_flags(flags)))


def test_a_mesh_that_is_not_text_is_refused():
    with pytest.raises(ConfigError, match="mesh: expected text, got 3"):
        merge({}, {"mesh": 3})


@pytest.mark.parametrize(
    "name", ["../../evil", "/tmp/evil", "a/../../evil", "..", "a\x1b[2J", "a\nb", "a\tb"]
)
def test_a_runs_name_stays_inside_the_folder_of_runs(name):
    with pytest.raises(ConfigError, match="inside runs") as caught:
        read(None, ["--name", name])
    assert "--name" in caught.value.hint


def test_names_inside_the_folder_of_runs_are_free():
    for name in ("", "mine", "lab/first run", "实验", "a..b", "."):
        assert read(None, [f"--name={name}"]).output.name == name


@pytest.mark.parametrize(("text", "why"), [("a\0b", "NUL"), ("a\udcffb", "not valid Unicode")])
@pytest.mark.parametrize("flag", ["--name", "--runs-dir", "--data.dir"])
def test_a_text_that_no_file_can_hold_is_refused(flag, text, why):
    with pytest.raises(ConfigError, match=why):
        read(None, ["--data", "mnist", flag, text])
