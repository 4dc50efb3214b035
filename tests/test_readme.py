"""The README's code runs, and its commands are ones that shoal knows."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from shoal.cli.main import COMMANDS, main
from shoal.config.read import read_flags

README = Path(__file__).parent.parent / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_three_lines_that_load_the_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "quickstart", "--steps", "2", "--threads", "1", "--name", "quickstart"]) == 0
    (code,) = (block for block in blocks("python") if "load_file" in block)
    names: dict[str, object] = {}
    exec(code, names)
    from shoal.train.weights import read_model

    weights, _ = read_model(tmp_path / "runs/quickstart/model.safetensors")
    for name, tensor in names["net"].state_dict().items():
        assert (tensor == weights[name]).all()


def test_the_loop_of_ones_own():
    """As it stands there, on a small data set: a world of one, as anybody's first try is."""
    inputs, labels = torch.randn(100, 4), torch.randint(3, (100,))
    model = torch.nn.Linear(4, 3)
    names = {
        "model": model,
        "dataset": TensorDataset(inputs, labels),
        "DataLoader": DataLoader,
        "functional": torch.nn.functional,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    before = model.weight.clone()
    (code,) = (block for block in blocks("python") if "shoal.join" in block)
    exec(code, names)
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize(
    "flags",
    [
        ["--model", "mine:net", "--model.width", "8"],
        ["--loss", "mine:loss"],
        ["--optimizer", "mine:optimizer", "--lr", "0.1"],
        ["--strategy", "naive", "--exchange", "mine:exchange"],
        ["--strategy", "naive", "--partition", "mine:partition"],
    ],
    ids=lambda flags: next(flag for flag in flags if flag.startswith("mine:")),
)
def test_what_is_ones_own_is_taken(flags, tmp_path, monkeypatch, capsys):
    (code,) = (block for block in blocks("python") if "def net" in block)
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    workers = ["--workers", "2", "--launcher", "threads"] if "--strategy" in flags else []
    small = ["--data.samples", "100", "--steps", "2", "--threads", "1"]
    sys.modules.pop("mine", None)  # other tests, too, have a module of this name
    try:
        assert main(["train", "--model", "linear", *small, *workers, *flags]) == 0
    finally:
        sys.modules.pop("mine", None)
    assert "test accuracy" in capsys.readouterr().out


COMMANDS_SHOWN = [
    line.split("  #")[0].removeprefix("$ ").strip()
    for block in blocks("")
    for line in block.splitlines()
    if re.match(r"(\$ )?shoal ", line)
]


def test_the_readme_shows_every_command():
    assert {shlex.split(line)[1] for line in COMMANDS_SHOWN} == set(COMMANDS)


@pytest.mark.parametrize("line", [line for line in COMMANDS_SHOWN if line.startswith("shoal train")])
def test_the_flags_of_the_readme_exist(line):
    words = [word for word in shlex.split(line)[2:] if word not in ("--json", "--resume")]
    read_flags(words[1:] if words and not words[0].startswith("--") else words)


def test_every_file_the_readme_points_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target


def test_make_is_all_it_takes():
    assert shutil.which("make"), "the README promises that make is enough"
    makefile = (README.parent / "Makefile").read_text()
    for goal in re.findall(r"^make (\w+)", "\n".join(blocks("")), re.MULTILINE):
        assert re.search(rf"^{goal}:", makefile, re.MULTILINE)
