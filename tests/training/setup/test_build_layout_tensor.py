"""`--strategy tensor` as a user runs it: the result of `single`, dropout, resume, bf16, accumulation, errors."""

import pytest
from small_runs import train

from shoal.cli.main import main

TINY = "--data synthetic --data.samples 96 --data.shape 1,4,4 --data.classes 4 --batch-size 32 --epochs 2 "
TINY += "--threads 1 --device cpu --optimizer sgd --lr 0.1"
MLP = f"{TINY} --model mlp --model.hidden 8,8"
DROPPING = f"{TINY} --model dropping:net"
TENSOR = "--strategy tensor --workers 2 --launcher threads"
NET = """
from torch import nn

def net():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 6), nn.Dropout(0.5), nn.Linear(6, 4)
    )
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "dropping.py").write_text(NET)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "more", ["", "--micro-batch 7 --clip-norm 0.1", "--precision bf16", "--optimizer adam --lr 0.01"]
)
def test_the_result_is_that_of_one_machine(capsys, more):
    single = train(capsys, MLP, more, "--name one")
    tensor = train(capsys, MLP, more, TENSOR, "--name two")
    assert (tensor["strategy"], tensor["workers"]) == ("tensor", 2)
    close = 0.02 if "bf16" in more else 1e-4
    assert tensor["final_loss"] == pytest.approx(single["final_loss"], rel=close)
    assert tensor["test_loss"] == pytest.approx(single["test_loss"], rel=close)


def test_dropout_draws_one_machines_masks_in_divided_and_in_whole_layers(capsys):
    single = train(capsys, DROPPING, "--name one")
    tensor = train(capsys, DROPPING, TENSOR, "--name two")
    assert tensor["final_loss"] == pytest.approx(single["final_loss"], rel=1e-5)
    replicas = train(capsys, DROPPING, "--mesh data=2,tensor=2 --launcher threads --name four")
    ddp = train(capsys, DROPPING, "--mesh data=2 --launcher threads --name ddp")
    assert replicas["final_loss"] == pytest.approx(ddp["final_loss"], rel=1e-5)
    assert replicas["final_loss"] != pytest.approx(single["final_loss"], rel=1e-5), (
        "each replica draws its own"
    )


def test_a_resumed_run_has_the_same_bits(capsys):
    whole = train(capsys, DROPPING, TENSOR, "--name whole")
    train(capsys, DROPPING, TENSOR, "--name cut --steps 2")
    resumed = train(
        capsys, f"--model dropping:net --resume runs/cut --launcher threads --steps {whole['steps']}"
    )
    assert resumed["weights_sha256"] == whole["weights_sha256"]


def test_a_plan_is_read_from_a_file(capsys, tmp_path):
    (tmp_path / "plan.toml").write_text('fc1 = "gather"\nfc2 = "column"\nfc3 = "row"')
    planned = train(capsys, MLP, TENSOR, "--tensor.plan plan.toml --name planned")
    assert planned["final_loss"] == pytest.approx(train(capsys, MLP, "--name one")["final_loss"], rel=1e-4)


def test_a_run_of_one_machine_is_resumed_with_a_plan(capsys, tmp_path):
    (tmp_path / "plan.toml").write_text('fc2 = "column"\nfc3 = "row"')
    whole = train(capsys, MLP, "--name whole")
    train(capsys, MLP, "--name cut --steps 2")
    resumed = train(capsys, f"--resume runs/cut --steps {whole['steps']} {TENSOR} --tensor.plan plan.toml")
    assert resumed["final_loss"] == pytest.approx(whole["final_loss"], rel=1e-4)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--tensor.plan plan.toml", "cannot read the plan plan.toml: No such file or directory"),
        ("--tensor.plan fc9.toml", "the plan cuts 'fc9', but the model has no such layer"),
        ("--model.hidden 7,7", "the automatic plan finds no layer of Sequential that 2 workers can divide"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(capsys, tmp_path, words, sentence):
    (tmp_path / "fc9.toml").write_text('fc9 = "column"')
    assert main(["train", *f"{MLP} {TENSOR} {words}".split()]) == 2
    assert sentence in capsys.readouterr().err
