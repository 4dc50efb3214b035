"""Checkpoints: whole or not there, and never believed unseen."""

import json
import os
import random

import pytest
import torch

from shoal.errors import CheckpointError
from shoal.strategies.pieces.piece import Piece
from shoal.training import checkpoint
from shoal.training.progress import Progress

TENSORS = {"model.w": torch.arange(6.0).view(2, 3), "optim.w.step": torch.tensor(3.0)}


def save(folder, step, keep=2, tensors=TENSORS):
    pieces = [Piece.whole(name, tensor) for name, tensor in tensors.items()]
    return checkpoint.save(
        folder, pieces, Progress(step=step, epoch=1, consumed=64, epoch_loss_sum=0.1), keep
    )


def test_what_is_saved_is_what_is_loaded(tmp_path):
    save(tmp_path, 5)
    found = checkpoint.latest(tmp_path)
    assert found.progress == Progress(step=5, epoch=1, consumed=64, epoch_loss_sum=0.1)
    pieces = found.pieces()
    assert pieces.keys() == TENSORS.keys()
    assert all(torch.equal(pieces[name], TENSORS[name]) for name in TENSORS)


def test_tied_weights_and_slices_can_be_saved(tmp_path):
    weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    save(tmp_path, 1, tensors={"model.a": weight, "model.b": weight, "model.c": weight.t()[1:]})
    pieces = checkpoint.latest(tmp_path).pieces()
    assert torch.equal(pieces["model.a"], pieces["model.b"])
    assert torch.equal(pieces["model.c"], weight.t()[1:])


def test_older_ones_go_once_newer_ones_are_safe(tmp_path):
    for step in (5, 10, 15, 1000000):
        save(tmp_path, step)
    assert sorted(os.listdir(tmp_path)) == ["step-000015", "step-1000000"]
    assert checkpoint.latest(tmp_path).progress.step == 1000000


def test_the_best_one_stays(tmp_path):
    pieces = [Piece.whole(name, tensor) for name, tensor in TENSORS.items()]
    for step, best in ((5, 5), (10, 10), (15, 10), (20, 10)):
        checkpoint.save(tmp_path, pieces, Progress(step=step, best_step=best, best_value=0.5), keep=1)
    assert sorted(os.listdir(tmp_path)) == ["step-000010", "step-000020"]
    assert checkpoint.best(tmp_path).progress.step == 10
    assert checkpoint.latest(tmp_path).progress.step == 20


def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path):
    save(tmp_path, 5)
    path = save(tmp_path, 10) / checkpoint.tensors_of(0)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    assert checkpoint.latest(tmp_path).progress.step == 5
    with pytest.raises(
        CheckpointError, match="is damaged: its sha256 is [0-9a-f]{64}, but the manifest has [0-9a-f]{64}"
    ):
        checkpoint.verify(tmp_path / "step-000010")


def test_a_checkpoint_has_another_name_before_its_first_file_is_deleted(tmp_path, monkeypatch):
    """As if the process were killed in the middle of each deletion."""

    def interrupted(path, **_):
        (path / checkpoint.MANIFEST).unlink(missing_ok=True)

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", interrupted)
        for step in (5, 10, 15):
            save(tmp_path, step, keep=1)
        (tmp_path / "step-000015" / checkpoint.MANIFEST).write_text("damaged")
        save(tmp_path, 15, keep=1)
    assert len(os.listdir(tmp_path)) > 1
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-000015"]
    assert checkpoint.verify(tmp_path / "step-000015")
    assert checkpoint.latest(tmp_path).passed_over == ()
    save(tmp_path, 20, keep=1)
    assert os.listdir(tmp_path) == ["step-000020"]


def test_checkpoints_are_not_saved_through_a_link(tmp_path):
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "checkpoints"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="symbolic link"):
        save(folder, 5)
    assert os.listdir(elsewhere) == []
    folder.unlink()
    save(folder, 5)
    (folder / "step-000010").symlink_to(elsewhere)
    (folder / "step-000010.tmp").symlink_to(elsewhere)
    save(folder, 10, keep=1)
    assert os.listdir(elsewhere) == []
    assert os.listdir(folder) == ["step-000010"]


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        "{}",
        '{"format": 9}',
        '{"format": 1, "progress": {"step": 1, "what": 2}, "files": {}}',
        '{"format": 1, "progress": {}, "files": {"../../etc/passwd": {"sha256": "0"}}}',
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path, manifest):
    (save(tmp_path, 5) / checkpoint.MANIFEST).write_text(manifest)
    with pytest.raises(CheckpointError, match="no checkpoint in .* can be used"):
        checkpoint.latest(tmp_path)


@pytest.mark.parametrize("leftover", ["step-000009.tmp", "step-junk"])
def test_a_save_that_was_cut_short_does_not_count(tmp_path, leftover):
    save(tmp_path, 5)
    (tmp_path / leftover).mkdir()
    assert checkpoint.latest(tmp_path).progress.step == 5


@pytest.mark.parametrize("seed", range(40))
def test_any_flipped_bit_of_the_manifest_is_noticed(tmp_path, seed):
    path = save(tmp_path, 5) / checkpoint.MANIFEST
    content = bytearray(path.read_bytes())
    draw = random.Random(seed)
    position = draw.randrange(len(content))
    content[position] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="can be used"):
        checkpoint.latest(tmp_path)


@pytest.mark.parametrize("version", ["1", "true"])
def test_a_manifest_cannot_pass_for_one_without_a_checksum(tmp_path, version):
    path = save(tmp_path, 5) / checkpoint.MANIFEST
    path.write_text(path.read_text().replace('"format": 2', f'"format": {version}'))
    with pytest.raises(CheckpointError, match="can be used"):
        checkpoint.latest(tmp_path)


def test_a_changed_number_is_noticed_and_the_one_before_is_used_and_named(tmp_path):
    save(tmp_path, 5)
    path = save(tmp_path, 10) / checkpoint.MANIFEST
    path.write_text(path.read_text().replace('"consumed": 64', '"consumed": 65'))
    found = checkpoint.latest(tmp_path)
    assert found.progress.step == 5
    assert f"{path} is damaged: its content does not match its sha256" in found.passed_over[0]
    assert found.fallback.endswith(f"step 5 is used instead ({tmp_path / 'step-000005'})")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 10**18 + 0.5),
        ("step", -1),
        ("step", 2**63),
        ("step", True),
        ("epoch", "1"),
        ("consumed", None),
        ("divided_among", 0),
        ("seconds", float("inf")),
        ("seconds", 2**63),
        ("seconds", float("nan")),
        ("epoch_loss_sum", [1]),
        ("last_epoch_loss", "1"),
    ],
)
def test_impossible_values_are_refused_also_without_a_checksum(tmp_path, name, value):
    path = save(tmp_path, 5) / checkpoint.MANIFEST
    manifest = json.loads(path.read_text())
    manifest["format"] = 1
    del manifest["sha256"]
    manifest["progress"][name] = value
    path.write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=f"{path} is damaged: progress '{name}' cannot be"):
        checkpoint.verify(path.parent)


@pytest.mark.parametrize("file", [checkpoint.MANIFEST, checkpoint.tensors_of(0)])
def test_a_pipe_or_a_folder_in_place_of_a_file_is_an_error_and_no_hang(tmp_path, file):
    path = save(tmp_path, 5) / file
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is a pipe, a socket or a device"):
        checkpoint.verify(path.parent)
    path.unlink()
    path.mkdir()
    with pytest.raises(CheckpointError, match="is a folder, not a file"):
        checkpoint.verify(path.parent)


def test_no_checkpoint_at_all(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        checkpoint.latest(tmp_path / "nowhere")


def test_a_save_that_fails_keeps_what_was_there_and_leaves_nothing_beside_it(tmp_path):
    save(tmp_path, 5)
    meta = torch.empty(3, device="meta")
    with pytest.raises((CheckpointError, NotImplementedError)):
        save(tmp_path, 10, tensors={"model.w": meta})
    (tmp_path / "blocked").write_text("")
    with pytest.raises(CheckpointError, match="MiB needed, .* free"):
        save(tmp_path / "blocked", 10)
    assert checkpoint.latest(tmp_path).progress.step == 5


def test_an_interrupted_save_leaves_nothing_beside_it(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "_write_tensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_saving_the_same_step_again_changes_nothing(tmp_path):
    path = save(tmp_path, 5)
    before = json.loads((path / checkpoint.MANIFEST).read_text())
    assert save(tmp_path, 5) == path
    assert json.loads((path / checkpoint.MANIFEST).read_text()) == before
