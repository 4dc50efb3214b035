"""Models of transformers: every strategy has the weights of one process, and `from_pretrained` loads them."""

import json
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from shoal.cli.main import main
from shoal.config.sections.data import SyntheticConfig
from shoal.data import load

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "examples/hf_causal_lm.py")
# Two workers with two parts each in every step; the texts have 5 to 9 tokens.
SMALL = "--float64 --steps 4 --batch-size 8 --micro-batch 2 --layers 2 --width 16 --length 9 --lr 0.01"
STRATEGIES = ["ddp", "onecopy", "zero --stage 1", "zero --stage 3"]


def launch(words):
    return main(["launch", "--workers", "2", *shlex.split(words)])


def assert_same_weights(found, expected):
    found, expected = (load_file(Path(folder) / "model.safetensors") for folder in (found, expected))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name] - tensor).abs().max() <= 1e-12 * tensor.abs().max(), name


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder that one process saves, without checkpointing."""
    folder = tmp_path_factory.mktemp("alone")
    before, sys.argv = sys.argv, [PROGRAM, *SMALL.split(), "--save", str(folder)]
    try:
        runpy.run_path(PROGRAM, run_name="__main__")
    finally:
        sys.argv = before
    return folder


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loop_of_ones_own_equals_one_process(strategy, alone, tmp_path):
    flags = f"{SMALL} --strategy {strategy} --unit-mib 0.01 --checkpointing --save {tmp_path}"
    assert launch(f"--launcher threads {PROGRAM} {flags}") == 0
    assert_same_weights(tmp_path, alone)


@pytest.mark.long
@pytest.mark.parametrize("group", ["shm", "gloo"])
def test_processes_with_divided_parameters_equal_one_process(group, alone, tmp_path):
    """On gloo no worker sees the others' memory: parameters are gathered before use."""
    flags = f"{SMALL} --strategy zero --stage 3 --unit-mib 0.01 --checkpointing --save {tmp_path}"
    assert launch(f"--group {group} {PROGRAM} {flags}") == 0
    assert_same_weights(tmp_path, alone)


def test_what_is_saved_computes_the_same_scores_in_transformers(alone, capsys, monkeypatch, tmp_path):
    from transformers import AutoModelForCausalLM

    monkeypatch.chdir(ROOT)
    words = "train --json --model examples.hf:gpt2_small --model.layers 1 --model.width 16 --model.length 8 "
    words += "--data synthetic --data.task text --data.shape 8 --data.samples 60 --steps 3 --threads 1 --device cpu "
    words += "--strategy zero --strategy.stage 3 --workers 2 --launcher threads"
    assert main([*words.split(), "--runs-dir", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    monkeypatch.setattr(sys, "argv", ["hf_export.py", result["run"], str(tmp_path / "exported")])
    runpy.run_path(str(ROOT / "examples/hf_export.py"), run_name="__main__")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    assert model.lm_head.weight is model.transformer.wte.weight
    test = load(SyntheticConfig(task="text", shape=(8,), samples=60)).test
    with torch.no_grad():
        scores = model(input_ids=test.inputs.long()).logits
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), test.labels.flatten()).item()
    assert loss == pytest.approx(result["test_loss"], rel=1e-6)


MODEL = (
    "--model examples.hf:gpt2_small --model.layers 1 --model.width 16 --model.length 8 --model.dtype float64"
)
DATA = "--data synthetic --data.task text --data.shape 8 --data.samples 60 --batch-size 16"


def train(strategy, folder, capsys, settings=f"{MODEL} --model.checkpointing true {DATA} --steps 3"):
    words = f"train --json {settings} --optimizer.fast false --clip-norm 0.5 --threads 1 --device cpu"
    assert main([*words.split(), *f"--strategy {strategy} --runs-dir {folder}".split()]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_shoal_train_has_the_weights_of_one_process(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    single = train("single --micro-batch 8", tmp_path, capsys)
    sha256s = set()
    for strategy in ("ddp", "onecopy", "zero --strategy.stage 3 --strategy.unit_mib 0.01"):
        result = train(f"{strategy} --workers 2 --launcher threads", tmp_path, capsys)
        assert_same_weights(result["run"], single["run"])
        sha256s.add(result["weights_sha256"])
    assert len(sha256s) == 1
    accumulated = train(
        "zero --strategy.stage 3 --micro-batch 4 --workers 2 --launcher threads", tmp_path, capsys
    )
    assert_same_weights(accumulated["run"], single["run"])


def test_a_run_with_tied_weights_continues_under_another_strategy(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    threads = "--workers 2 --launcher threads"
    whole = train(f"ddp {threads}", tmp_path, capsys, f"{MODEL} {DATA} --epochs 2")
    first = train(f"zero --strategy.stage 3 {threads}", tmp_path, capsys, f"{MODEL} {DATA} --epochs 1")
    resume = f"train --json --trust-code --resume {first['run']} --epochs 2 --strategy ddp {threads}"
    assert main(resume.split()) == 0
    then = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (then["steps"], then["weights_sha256"]) == (whole["steps"], whole["weights_sha256"])


@pytest.mark.parametrize(
    "words",
    [
        f"launch --workers 2 --launcher threads {PROGRAM}",
        "train --model examples.hf:gpt2_small --data synthetic --data.task text",
    ],
    ids=["launch", "train"],
)
def test_without_transformers_one_sentence_says_how_to_install_it(words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "transformers", None)
    flags = ["--runs-dir", str(tmp_path)] if words.startswith("train") else []
    assert main([*words.split(), *flags]) == 2
    said = capsys.readouterr().err
    assert "needs the package transformers" in said
    assert "pip install 'shoal[hf]'" in said


def test_misuse_is_one_sentence(capsys, monkeypatch, tmp_path):
    assert launch(f"--launcher threads {PROGRAM} --batch-size 12 --micro-batch 4") == 2
    assert "--batch-size 12 is not a multiple of 8 (2 workers × --micro-batch 4)" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["hf_export.py", str(tmp_path), str(tmp_path / "exported")])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(ROOT / "examples/hf_export.py"), run_name="__main__")
    assert capsys.readouterr().err == f"error: {tmp_path} is neither a run folder nor a safetensors file\n"
