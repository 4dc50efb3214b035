"""Names in files select what is ours; a function of the user's own needs consent."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.config.custom import FileText, from_file, load, trusted
from shoal.config.read import FileFlagText, from_tree, merge, parse_toml, read, read_flags
from shoal.config.schema import RunConfig, named_code
from shoal.config.sections.exchange import StagesConfig
from shoal.config.sections.values import Custom
from shoal.config.write import from_plain, to_plain
from shoal.errors import ConfigError

DDP = ["--strategy", "ddp", "--workers", "2"]
SECTIONS = {
    "model": 'model = "math:hypot"',
    "loss": '[loss]\nname = "math:hypot"',
    "optimizer": 'optimizer = "math:hypot"',
    "partition": 'partition = "math:hypot"',
    "exchange": 'exchange = "math:hypot"',
    "exchange ": 'exchange = "stages:0=all_reduce,0.5=math:hypot"',
    "exchange  ": '[exchange]\nname = "stages"\nplan = ["0=math:hypot"]',
    "exchange.rule": 'exchange = "robust:math:hypot"',
    "exchange.rule ": 'exchange = "stages:0=robust:math:hypot"',
    "exchange.codec": 'exchange = "compressed:math:hypot"',
    "exchange.codec ": 'exchange = "stages:0=all_reduce,0.5=compressed:math:hypot"',
}


def read_text(text, **consent):
    return from_tree(merge(parse_toml(text, Path("somebody.toml"), **consent), read_flags(DDP)))


@pytest.mark.parametrize("section", SECTIONS)
def test_every_name_of_a_file_is_refused_when_it_is_loaded_or_handed_to_a_worker(section):
    config = read_text(SECTIONS[section])
    [(kind, custom)] = named_code(config)
    assert kind == section.strip()
    for use in (
        lambda: load(kind, custom),
        lambda: to_plain(config),
        lambda: to_plain(replace(config, seed=3)),
    ):
        with pytest.raises(ConfigError, match="files run no code") as caught:
            use()
        assert "--trust-code" in caught.value.hint
        assert f"--{kind} math:hypot" in caught.value.hint


@pytest.mark.parametrize("section", SECTIONS)
def test_consent_makes_it_the_users_own(section):
    config = read_text(SECTIONS[section], trust_code=True)
    [(kind, custom)] = named_code(config)
    assert load(kind, custom)(3, 4) == 5
    assert from_plain(json.loads(json.dumps(to_plain(config)))) == config == read_text(SECTIONS[section])


def test_the_name_in_the_command_is_consent_with_the_options_of_the_file():
    saved = parse_toml('[model]\nname = "math:hypot"\nwidth = 3', Path("run"))
    config = from_tree(merge(saved, read_flags(["--model", "math:hypot"])))
    assert load("model", named_code(config)[0][1])
    assert dict(config.model.options) == {"width": 3}
    other = from_tree(merge(saved, read_flags(["--model.width", "4"])))
    with pytest.raises(ConfigError, match="consent"):
        to_plain(other)


def test_flags_written_in_a_file_are_the_files():
    for words in (
        ["--model", "math:hypot"],
        ["--exchange", "stages:0=math:hypot"],
        ["--exchange.name=math:hypot"],
    ):
        with pytest.raises(ConfigError, match="consent"):
            to_plain(from_tree(read_flags([*DDP, *words], FileFlagText)))
        to_plain(from_tree(read_flags([*DDP, *words])))


def test_names_of_a_program_need_no_consent():
    assert to_plain(RunConfig(model=Custom("math:hypot")))
    stages = StagesConfig(plan=("0=math:hypot",))
    assert to_plain(replace(read(None, DDP), exchange=stages))
    assert to_plain(read(None, ["--model", "math:hypot"]))


def test_an_old_name_of_a_function_of_the_labs_needs_consent_too():
    old = 'model = "shoal.labs.frame:import_module"'
    [(kind, custom)] = named_code(read_text(old))
    with pytest.raises(ConfigError, match="files run no code"):
        load(kind, custom)
    assert named_code(read_text(old, trust_code=True)) == [(kind, Custom("shoal_labs.frame:import_module"))]
    with pytest.raises(ConfigError, match="expected"):
        Custom(5)


def test_a_mark_survives_copies_and_goes_with_consent():
    tree = from_file({"a": ["x", ("y", 1)], "b": True})
    assert tree == {"a": ["x", ("y", 1)], "b": True}
    assert isinstance(copy.deepcopy(tree)["a"][1][0], FileText)
    assert type(trusted(tree)["a"][0]) is str


def test_a_stage_in_a_file_needs_consent_also_if_a_flag_has_named_the_same():
    plans = ("0=my:exchange",), (FileText("0=my:exchange"),), ("0=my:exchange",)
    names = [StagesConfig(plan=plan).stages()[0][1].name for plan in plans]
    assert [isinstance(name, FileText) for name in names] == [False, True, False]
