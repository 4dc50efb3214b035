from pathlib import Path

import pytest

from shoal.config.sections.data import DigitsConfig, MnistConfig
from shoal.errors import ConfigError
from shoal_labs.choices import with_choices
from shoal_labs.frame import load_lab
from shoal_labs.settings import SETTINGS, Lab2Settings


def plan_of(number, **given):
    lab = load_lab(number)
    settings = SETTINGS[lab.number](quick=True, **given)
    return with_choices(lab.plan(settings), settings)


@pytest.mark.parametrize("number", ["1", "2", "3", "4"])
def test_every_run_of_a_lab_uses_the_chosen_data(number):
    own, chosen = plan_of(number), plan_of(number, data="mnist", data_dir=Path("files"))
    assert isinstance(own.data, DigitsConfig)
    assert chosen.data == MnistConfig(dir="files", samples=own.data.samples, validation=own.data.validation)
    lab = load_lab(number)
    assert all(run.data == chosen.data for run in lab.runs(chosen).values())


def test_every_part_about_digits_uses_the_chosen_data():
    own, chosen = plan_of("optimise").parts, plan_of("optimise", data="mnist", data_dir=Path("files")).parts
    about_digits = [name for name in own if isinstance(own[name].data, DigitsConfig)]
    assert about_digits == ["compression", "straggler", "pruning"]
    for name in about_digits:
        data = own[name].data
        assert chosen[name].data == MnistConfig(dir="files", samples=data.samples, validation=data.validation)
    assert chosen["memory"] == own["memory"]
    runs = load_lab("optimise").runs(plan_of("optimise", data="mnist", samples=640))
    assert {(run.data.name, run.data.samples) for run in runs.values()} == {("mnist", 640)}


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_the_number_of_samples_can_be_chosen(number):
    assert plan_of(number, samples=640).data.samples == 640
    assert plan_of(number, data="mnist", samples=60000).data.samples == 60000


@pytest.mark.parametrize("number", ["2", "3"])
def test_every_run_of_a_lab_uses_the_chosen_device(number, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    plan = plan_of(number, device="cuda")
    assert {run.device for run in load_lab(number).runs(plan).values()} == {"cuda"}


def test_what_cannot_be_chosen_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="--device cuda, but torch sees no GPU"):
        plan_of("2", device="cuda")
    with pytest.raises(ConfigError, match="did you mean 'mnist'"):
        plan_of("3", data="mnit")
    with pytest.raises(ConfigError, match="--data-dir has no effect with --data digits"):
        plan_of("4", data_dir=Path("files"))
    assert with_choices(plan_of("autograd"), Lab2Settings(data="mnist")) == plan_of("autograd")
