"""Pruning while a run trains: masks, bytes, resuming with another number of workers, rewinding."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from shoal.cli.main import main
from shoal.events.file import read_events

TINY = "--data synthetic --data.samples 96 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 12 "
TINY += "--batch-size 16 --epochs 2 --threads 1 --device cpu --launcher threads"
PRUNE = "--prune magnitude --prune.sparsity 0.75 --prune.every 2 --prune.begin 0.1"
PARAMS, PRUNABLE = 12 * 16 + 12 + 3 * 12 + 3, 12 * 16 + 3 * 12


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(capsys, words):
    assert main(["train", "--json", *words.split()]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def changes_of(folder, rank):
    events = read_events(folder / f"events.rank{rank}.jsonl")
    return [event for event in events if event["event"] == "pruned"]


def test_masks_are_the_same_on_all_workers_and_weights_are_zero_where_they_say(here, capsys):
    result = train(capsys, f"{TINY} {PRUNE} --strategy ddp --workers 2 --name mine")
    first, second = (changes_of(here / "runs/mine", rank) for rank in range(2))
    assert first == second
    assert [event["step"] for event in first] == [1, 3, 5, 6]
    assert first[-1]["masks_sha256"] == result["masks_sha256"]
    assert result["sparsity"] == 0.75
    masks, weights = (load_file(here / f"runs/mine/{name}.safetensors") for name in ("masks", "model"))
    assert masks.keys() == {"fc1.weight", "fc2.weight"}
    for name, kept in masks.items():
        assert (weights[name][~kept] == 0).all()
        assert (weights[name][kept] != 0).all()
    assert sum(int((~kept).sum()) for kept in masks.values()) == 0.75 * PRUNABLE


def test_bytes_on_the_wire_fall_by_what_is_pruned(here, capsys):
    """Before the first pruning a step sends everything, then only what is kept at that step."""
    ddp = f"{TINY} --strategy ddp --workers 2"
    dense, sparse = (train(capsys, f"{ddp} {flags}") for flags in ("--name full", f"{PRUNE} --name mine"))
    kept = {event["step"]: event["kept"] for event in changes_of(here / "runs/mine", 0)}
    saved = 0
    for step in range(12):
        now = max((at for at in kept if at <= step), default=None)
        saved += 0 if now is None else 4 * (PRUNABLE - kept[now])
    assert dense["bytes_sent"] - sparse["bytes_sent"] == saved


def test_sparsity_0_equals_no_pruning(here, capsys):
    for flags in ("", "--strategy ddp --workers 2"):
        plain = train(capsys, f"{TINY} {flags}")
        pruned = train(capsys, f"{TINY} {flags} --prune magnitude --prune.sparsity 0")
        assert pruned["weights_sha256"] == plain["weights_sha256"]


@pytest.mark.parametrize("method", ["magnitude", "movement"])
def test_a_resumed_run_has_the_same_masks_with_another_number_of_workers(here, capsys, method):
    flags = f"{TINY} --prune {method} --prune.sparsity 0.6 --prune.every 1 --prune.end 0.8"
    flags += " --reduction invariant --micro-batch 4 --checkpoint.every 4 --checkpoint.keep 9"
    straight = train(capsys, f"{flags} --name whole")
    for workers in (1, 2, 4):
        # As if the run had been killed after step 4, in the middle of its pruning.
        folder = here / f"runs/killed{workers}"
        shutil.copytree(here / "runs/whole", folder)
        for path in [*folder.glob("checkpoints/step-00001*"), folder / "checkpoints/step-000008"]:
            shutil.rmtree(path)
        (folder / "model.safetensors").unlink()
        resumed = train(capsys, f"--resume {folder} --strategy ddp --workers {workers}")
        assert resumed["masks_sha256"] == straight["masks_sha256"]
        assert resumed["weights_sha256"] == straight["weights_sha256"]
    assert straight["sparsity"] == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize(
    "prune",
    ["magnitude --prune.sparsity 0.75", "movement --prune.sparsity 0.75", "magnitude --prune.pattern 1:4"],
)
def test_a_resumed_run_with_more_epochs_revives_nothing(here, capsys, prune):
    """The curve of the longer run is lower at the same step: it asks for less than is pruned already."""
    flags = f"--strategy ddp --workers 2 --prune {prune} --prune.every 2"
    train(capsys, f"{TINY} {flags} --name mine")
    before = load_file(here / "runs/mine/masks.safetensors")
    result = train(capsys, "--resume runs/mine --epochs 8")
    after, weights = (load_file(here / f"runs/mine/{name}.safetensors") for name in ("masks", "model"))
    assert not any((after[name] & ~kept).any() for name, kept in before.items())
    assert all((weights[name][~kept] == 0).all() for name, kept in after.items())
    first, second = (changes_of(here / "runs/mine", rank) for rank in range(2))
    assert first == second
    found = [event["sparsity"] for event in first]
    assert max(event["step"] for event in first) == 24  # half of the 48 steps: the new curve was followed
    assert found == sorted(found)
    assert found[-1] == result["sparsity"] == 0.75


def test_a_lottery_ticket_starts_from_the_initial_weights(here, capsys):
    train(capsys, f"{TINY} --name base --checkpoint.every 4 --checkpoint.keep 9")
    flags = "--start runs/base --prune magnitude --prune.sparsity 0.5 --prune.end 0 --steps 1 --lr 1e-12"
    train(capsys, f"{TINY} {flags} --prune.rewind 0 --name ticket")
    masks, ticket = (load_file(here / f"runs/ticket/{name}.safetensors") for name in ("masks", "model"))
    trained = load_file(here / "runs/base/model.safetensors")
    train(capsys, f"{TINY} --steps 1 --lr 1e-12 --name first")
    initial = load_file(here / "runs/first/model.safetensors")
    for name, kept in masks.items():
        assert trained[name].abs()[kept].min() >= trained[name].abs()[~kept].quantile(0.5)
        assert torch.allclose(ticket[name], initial[name] * kept, atol=1e-9)
    assert torch.allclose(ticket["fc1.bias"], initial["fc1.bias"], atol=1e-9)
    train(capsys, f"{TINY} {flags} --prune.rewind 4 --name later")
    later = load_file(here / "runs/later/model.safetensors")
    assert not torch.allclose(later["fc1.bias"], initial["fc1.bias"], atol=1e-6)
    train(capsys, f"{TINY} --start runs/base --prune channels --steps 1 --name small")
    small = flags.replace("runs/base", "runs/small")
    assert main(["train", *f"{TINY} {small} --prune.rewind 0".split()]) == 2
    assert "cannot rewind runs/small to its initial weights" in capsys.readouterr().err
    assert main(["train", *f"{TINY} {flags} --prune.rewind 5".split()]) == 2
    assert "has no checkpoint of step 5" in capsys.readouterr().err


def test_a_run_starts_from_the_weights_of_another(here, capsys):
    train(capsys, f"{TINY} --name base")
    train(capsys, f"{TINY} --start runs/base --steps 1 --lr 1e-12 --name again")
    first, second = (load_file(here / f"runs/{name}/model.safetensors") for name in ("base", "again"))
    assert all(torch.allclose(first[name], second[name], atol=1e-9) for name in first)
    for start, message in {
        "runs/none": "does not exist",
        "runs/base/result.json": "cannot read weights",
    }.items():
        assert main(["train", *TINY.split(), "--start", start]) == 2
        assert message in capsys.readouterr().err
    assert main(["train", *TINY.split(), "--model.hidden", "9", "--start", "runs/base"]) == 2
    assert "--start runs/base does not fit the model" in capsys.readouterr().err
