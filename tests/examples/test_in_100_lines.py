"""The strategies in 100 lines equal the package's own, in float64; they are short, and stand alone."""

import ast
import re
import sys
from functools import cache, partial

import pytest
import single
import torch
from group_worlds import World
from hundred_line_cases import FOLDER, batches, program, train_program, train_real
from strategy_cases import distance, on_threads
from torch import nn

from shoal.cli.main import main
from shoal.comm.alone import alone

PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
STRATEGY_PROGRAMS = [name for name in PROGRAMS if name not in ("single", "rpc")]


@cache
def one_machine(make_optimizer=single.adam):
    return single.train(single.network(), batches(), make_optimizer)


def farthest(members, expected):
    """The largest distance of any tensor on any worker; together the workers have all of them."""
    assert set().union(*members) == expected.keys()
    return max(distance(each, expected[name]) for member in members for name, each in member.items())


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", STRATEGY_PROGRAMS)
def test_equals_the_strategy_of_the_package(name, size):
    members = on_threads(size, partial(train_program, name=name))
    assert farthest(members, on_threads(size, partial(train_real, name=name))[0]) <= 1e-12
    if name == "local":
        assert farthest(members, one_machine()) > 1e-4
    else:
        assert farthest(members, one_machine()) <= 1e-12


def test_local_steps_of_sgd_averaged_at_once_are_one_machines():
    def sgd(params):
        return torch.optim.SGD(params, lr=0.1)

    options = {"every": 1, "outer_lr": 1.0, "outer_momentum": 0.0}
    members = on_threads(2, lambda group: train_program(group, "local", sgd, **options))
    assert farthest(members, one_machine(sgd)) <= 1e-12


def in_processes(train):
    with World("shm", 3, limit_s=60.0) as world:
        outcomes = world.run(train, "rpc")
    assert [outcome.message for outcome in outcomes if outcome.error or outcome.gone] == []
    return [outcome.value for outcome in outcomes]


@pytest.mark.long
def test_rpc_equals_the_strategy_of_the_package():
    members, real = in_processes(train_program), in_processes(train_real)
    assert farthest(members, real[0]) <= 1e-12
    assert farthest(members, one_machine()) <= 1e-12


def test_a_bucket_whose_gradient_is_missing_is_an_error():
    class Partial(nn.Sequential):
        def forward(self, inputs):
            return self[:-1](inputs)

    model = Partial(*single.network(), nn.Linear(5, 5).double())
    with pytest.raises(RuntimeError):
        program("ddp").train(alone(), model, batches(), single.adam)


# As a user starts them.


def launched(name, workers, *words):
    return main(["launch", "--workers", str(workers), *words, str(FOLDER / f"{name}.py")])


@pytest.mark.parametrize("name", ["single", *STRATEGY_PROGRAMS])
def test_says_how_far_it_is_from_one_machine(name, capsys):
    assert launched(name, 2, "--launcher", "threads") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(name)
    far = float(re.search(r"([\d.e+-]+) from one machine$", line).group(1))
    assert far > 1e-4 if name == "local" else far <= 1e-12


@pytest.mark.long
def test_rpc_says_how_far_it_is_from_one_machine(capfd):
    assert launched("rpc", 3) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert float(line.split()[-4]) <= 1e-12


@pytest.mark.parametrize(("name", "workers"), [("pipeline", 4), ("tensor", 5), ("server", 1)])
def test_a_number_of_workers_that_cannot_be_is_one_sentence(name, workers, capsys):
    assert launched(name, workers, "--launcher", "threads") == 2
    assert "Traceback" not in capsys.readouterr().err


# What they are made of.


def imports_of(text):
    """Pairs of a module and what is imported from it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((each.name, None) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, each.name) for each in node.names)


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_most_100_lines_of_torch_and_groups(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 100
    ours = {("shoal", "join"), ("shoal.comm.group", "Group"), ("shoal.comm.group", "Work")}
    if name == "single":
        ours.add(("shoal.errors", "ConfigError"))
    others = sys.stdlib_module_names | {"torch", "single"}
    wrong = [
        each for each in imports_of(text) if each not in ours and each[0].partition(".")[0] not in others
    ]
    assert wrong == []


def test_the_page_lists_every_program_with_its_lines():
    rows = re.findall(r"(?m)^\| \[`(\w+)\.py`\]\(\1\.py\) \| (\d+) \|", (FOLDER / "README.md").read_text())
    assert dict(rows) == {
        name: str(len((FOLDER / f"{name}.py").read_text().splitlines())) for name in PROGRAMS
    }
