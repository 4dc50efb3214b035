"""The example programs train: alone and as threads they print the same, and what they print is true."""

import argparse
import importlib
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from shoal.cli.main import main
from shoal.config.sections.data import SyntheticConfig
from shoal.data import load

EXAMPLES = Path(__file__).parents[2] / "examples"
HAND_OUTS = Path(__file__).parents[2] / "src/shoal_labs"
WITH_FLAGS = [
    path
    for path in (*EXAMPLES.glob("*.py"), *HAND_OUTS.glob("lab*/solution/*.py"))
    if "parse_args(" in path.read_text()
]
# 61 samples in batches of 12: the last step of an epoch has a single sample, and most workers none.
SMALL = {
    "mnist_ddp.py": "--synthetic 61 --batch-size 12 --epochs 2 --lr 0.02",
    "cifar10_resnet18_ddp.py": "--synthetic 61 --batch-size 12 --steps 7 --width 4 --lr 0.01 --float64",
}
LINE = re.compile(r"epoch (\d+): .*training loss ([\d.]+), test accuracy ([\d.]+)%")


def printed(capsys):
    """Per epoch: loss and accuracy."""
    lines = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
    assert [int(line[1]) for line in lines] == [*range(1, len(lines) + 1)]
    return [(float(line[2]), float(line[3])) for line in lines]


def alone(monkeypatch, program, flags):
    monkeypatch.setattr(sys, "argv", [program, *flags.split()])
    return runpy.run_path(str(EXAMPLES / program), run_name="__main__")


def by_threads(program, flags, workers):
    words = ["launch", "--workers", str(workers), "--launcher", "threads", str(EXAMPLES / program)]
    return main([*words, *flags.split()])


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("program", SMALL)
def test_any_number_of_workers_computes_the_same(program, workers, capsys, monkeypatch):
    alone(monkeypatch, program, SMALL[program])
    expected = printed(capsys)
    assert by_threads(program, SMALL[program], workers) == 0
    found = printed(capsys)
    assert len(found) == 2
    assert sum(found, ()) == pytest.approx(sum(expected, ()), abs=2e-4)


def test_accuracy_is_that_of_the_whole_test_set(tmp_path, capsys, monkeypatch):
    path = tmp_path / "weights.safetensors"
    assert by_threads("mnist_ddp.py", f"{SMALL['mnist_ddp.py']} --save {path}", 3) == 0
    (_, (_, accuracy)) = printed(capsys)
    names = runpy.run_path(str(EXAMPLES / "mnist_ddp.py"))
    net = names["Net"]()
    net.load_state_dict(load_file(path))
    test = load(SyntheticConfig(samples=61)).test
    hits = (net(test.inputs).argmax(1) == test.labels).float().mean().item()
    assert accuracy == pytest.approx(100 * hits, abs=0.006)


def test_it_learns_digits(capsys, monkeypatch):
    alone(monkeypatch, "mnist_ddp.py", "--digits --epochs 1")
    ((_, accuracy),) = printed(capsys)
    assert accuracy > 85


@pytest.mark.parametrize("program", SMALL)
def test_a_batch_that_cannot_be_divided_is_one_sentence(program, capsys):
    assert by_threads(program, f"{SMALL[program]} --batch-size 11", 2) == 2
    assert "--batch-size 11 cannot be divided among 2 workers" in capsys.readouterr().err


def test_missing_data_is_one_sentence_that_says_how_to_get_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    assert by_threads("cifar10_resnet18_ddp.py", f"--data-dir {tmp_path}", 2) == 2
    said = capsys.readouterr().err
    assert "cifar10 is not on this machine" in said
    assert "shoal data fetch cifar10" in said


def test_the_random_state_of_torch_decides_nothing(capsys, monkeypatch):
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        alone(monkeypatch, "mnist_ddp.py", SMALL["mnist_ddp.py"])
        results.append(printed(capsys))
    assert results[0] == results[1]


def test_a_pipeline_of_any_number_of_stages_prints_the_same_losses(capsys, monkeypatch):
    alone(monkeypatch, "pipeline.py", "")
    expected = capsys.readouterr().out.splitlines()
    assert len(expected) == 6
    for workers in (2, 3):
        assert by_threads("pipeline.py", "", workers) == 0
        printed = capsys.readouterr().out.splitlines()
        assert printed[:5] == expected[:5]
        assert printed[5].partition(";")[0] == expected[5].partition(";")[0]


def test_two_towers_on_two_workers_have_the_weights_of_one_machine(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(EXAMPLES.parent)
    words = "train --json --model examples.two_towers:model --model.side 4 --model.width 8 --data synthetic --epochs 1 "
    words += f"--data.shape 1,4,4 --data.samples 100 --threads 1 --device cpu --runs-dir {tmp_path}"
    tensor = "--strategy tensor --tensor.plan examples/two_towers.toml --workers 2 --launcher threads"
    weights = []
    for more in ("", tensor):
        assert main(f"{words} {more}".split()) == 0
        weights.append(json.loads(capsys.readouterr().out.splitlines()[-1])["weights_sha256"])
    assert weights[0] == weights[1]


def trained(capsys, words, runs):
    assert main(f"train --json --threads 1 --device cpu --runs-dir {runs} {words}".split()) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("cut", ["blocks.3", "blocks.2,blocks.4"])
def test_an_ordinary_module_in_stages_trains_like_one_machine(cut, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(EXAMPLES.parent)
    words = "--model examples.residual_blocks:model --model.side 4 --model.width 8 --data synthetic "
    words += "--data.shape 1,4,4 --data.samples 100 --epochs 1 --optimizer sgd"
    stages = f"--strategy pipeline --workers {cut.count(',') + 2} --pipeline.cut {cut} --launcher threads"
    expected = trained(capsys, words, tmp_path)
    found = trained(capsys, f"{words} {stages}", tmp_path)
    assert found["final_loss"] == pytest.approx(expected["final_loss"], rel=1e-5)
    assert found["test_loss"] == pytest.approx(expected["test_loss"], rel=1e-5)


@pytest.mark.parametrize("plan", ["--tensor.plan examples/text_encoder.toml", ""])
def test_torchs_transformer_on_two_workers_trains_like_one_machine(plan, capsys, monkeypatch, tmp_path):
    """With its dropout: all workers draw one machine's masks."""
    monkeypatch.chdir(EXAMPLES.parent)
    words = "--model examples.text_encoder:model --model.length 12 --model.width 8 --data synthetic --data.task text "
    words += "--data.samples 64 --data.shape 12 --batch-size 16 --epochs 1 --optimizer sgd"
    tensor = f"--strategy tensor --workers 2 --launcher threads {plan}"
    expected = trained(capsys, words, tmp_path)
    found = trained(capsys, f"{words} {tensor}", tmp_path)
    assert found["final_loss"] == pytest.approx(expected["final_loss"], rel=1e-6)
    assert found["test_loss"] == pytest.approx(expected["test_loss"], rel=1e-6)


class ParsedError(Exception):
    """Ends a program where it parses its command line."""


@pytest.mark.parametrize("program", WITH_FLAGS, ids=lambda path: "/".join(path.parts[-3:]))
def test_programs_take_the_flag_that_torchs_old_launcher_adds(monkeypatch, program):
    def stop(parser, argv=None):
        raise ParsedError(parser)

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(ParsedError) as caught:
            runpy.run_path(str(program), run_name="__main__")
    needed = ["run", "folder"] if program.name == "hf_export.py" else []
    for flag in ("--local-rank=1", "--local_rank=1"):
        assert caught.value.args[0].parse_args([*needed, flag]).local_rank == 1


@pytest.mark.parametrize("lab", ["lab2", "lab3", "lab4"])
def test_a_launcher_tells_a_hand_out_who_it_is_and_flags_go_first(monkeypatch, lab):
    parse = importlib.import_module(f"shoal_labs.{lab}.solution.model").parse_args
    by_hand = parse([])
    told = {"LOCAL_RANK": "1", "RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "node01", "MASTER_PORT": "12"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    args = parse(["--local-rank=1"])
    assert (args.rank, args.n_devices, args.master_addr, args.master_port) == (5, 8, "node01", "12")
    assert by_hand.rank != 5
    assert parse(["--rank=2", "--n_devices=3"]).rank == 2


@pytest.mark.long
def test_the_recipe_with_16_bit_products_and_the_compiler_learns_what_float32_does(
    capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    words = ["train", str(EXAMPLES / "faster.toml"), "--json", "--quiet", "--epochs", "1", "--device", "cpu"]
    assert main(words) == 0
    fast = json.loads(capsys.readouterr().out)
    assert main([*words, "--precision", "float32", "--compile", "false"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert fast["compile_s"] > 0 == plain["compile_s"]
    assert fast["loss_scale"] > 1
    assert fast["workers"] == plain["workers"] == 2
    assert fast["test_loss"] == pytest.approx(plain["test_loss"], abs=0.05)
