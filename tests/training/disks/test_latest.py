"""Checkpoints of workers that do not share a disk: complete on the disks together, or not used."""

import os

import pytest
import torch
from apart import KEEPERS, WHOLE, folder_of, load, lose, save

from shoal.errors import CheckpointError
from shoal.training.checkpoint import MANIFEST, tensors_of, verify

FILES = {tensors_of(rank) for rank in range(4)}


def files_on(parent, rank, step, keepers=KEEPERS):
    return set(os.listdir(folder_of(parent, keepers, rank) / f"step-{step:06d}"))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def assert_loads(parent, step, keepers=KEEPERS):
    """All workers get the same checkpoint, and then all disks have all of it."""
    answers = load(parent, keepers)
    assert [found.progress.step for found, _ in answers] == [step] * len(keepers)
    assert all(torch.equal(whole, WHOLE * step) for _, whole in answers)
    for rank in range(len(keepers)):
        assert verify(folder_of(parent, keepers, rank) / f"step-{step:06d}")
    return answers[0][0]


def test_every_disk_has_its_parts_and_those_of_the_one_before(tmp_path):
    save(tmp_path, 3)
    assert files_on(tmp_path, 0, 3) == {MANIFEST, tensors_of(0), tensors_of(3)}
    assert files_on(tmp_path, 1, 3) == {MANIFEST, tensors_of(0), tensors_of(1), tensors_of(2)}
    assert files_on(tmp_path, 3, 3) == {MANIFEST, tensors_of(1), tensors_of(2), tensors_of(3)}
    manifests = {
        (folder_of(tmp_path, KEEPERS, rank) / "step-000003" / MANIFEST).read_bytes() for rank in range(4)
    }
    assert len(manifests) == 1


def test_a_reader_of_one_disk_is_told_where_the_other_parts_are(tmp_path):
    save(tmp_path, 3)
    with pytest.raises(
        CheckpointError, match=r"lacks rank1.safetensors, which rank 1 on node1 and rank 3 on node3"
    ):
        verify(folder_of(tmp_path, KEEPERS, 0) / "step-000003")


def test_what_is_saved_is_what_is_loaded(tmp_path):
    save(tmp_path, 3, 6)
    assert assert_loads(tmp_path, 6).passed_over == ()


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_losing_one_disk_loses_nothing(tmp_path, lost):
    save(tmp_path, 3, 6)
    lose(tmp_path, lost)
    with pytest.warns(UserWarning, match=rf"rank {lost} on node{lost} lacked parts of .*step-000006"):
        assert_loads(tmp_path, 6)


def test_losing_two_neighbours_names_what_is_missing(tmp_path):
    save(tmp_path, 3, 6)
    lose(tmp_path, 1)
    lose(tmp_path, 3)
    with pytest.raises(CheckpointError) as raised:
        load(tmp_path)
    for step in (3, 6):
        assert f"step-{step:06d} is not complete" in raised.value.message
    assert "rank1.safetensors (kept by rank 1 on node1 and rank 3 on node3)" in raised.value.message
    assert "rank0.safetensors" not in raised.value.message


def test_a_damaged_part_is_replaced_by_its_copy(tmp_path):
    save(tmp_path, 3)
    flip(folder_of(tmp_path, KEEPERS, 1) / "step-000003" / tensors_of(1))
    with pytest.warns(UserWarning, match="rank 1 on node1 lacked parts"):
        assert_loads(tmp_path, 3)


def test_a_part_of_another_step_is_not_taken(tmp_path):
    save(tmp_path, 3, 6)
    for rank in (1, 3):
        folder = folder_of(tmp_path, KEEPERS, rank)
        (folder / "step-000006" / tensors_of(1)).write_bytes(
            (folder / "step-000003" / tensors_of(1)).read_bytes()
        )
    found = assert_loads(tmp_path, 3)
    assert "step-000006 is not complete: no machine here has rank1.safetensors" in found.fallback
    assert "step 3 is used instead" in found.fallback


def test_the_newest_one_that_all_disks_have_together_counts(tmp_path):
    """As after a kill while the folders were renamed: two disks have not come to it."""
    save(tmp_path, 3, 6)
    for rank in (1, 3):
        folder = folder_of(tmp_path, KEEPERS, rank)
        (folder / "step-000006").rename(folder / "step-000006.tmp")
    found = assert_loads(tmp_path, 3)
    assert len(found.passed_over) == 1
    save(tmp_path, 6)  # what was left does not disturb the run that goes on
    assert_loads(tmp_path, 6)


def test_a_checkpoint_that_another_attempt_made_is_replaced(tmp_path):
    """A machine was away while the run went on without it: it has another checkpoint of the same step."""
    save(tmp_path, 3)
    away = folder_of(tmp_path, KEEPERS, 3)
    save(tmp_path / "others", 3, keepers=(0, 1, 2, 3))
    away.joinpath("step-000003").rename(away / "old")
    folder_of(tmp_path / "others", (0, 1, 2, 3), 3).joinpath("step-000003").rename(away / "step-000003")
    with pytest.warns(UserWarning, match="rank 3 on node3 lacked parts"):
        assert_loads(tmp_path, 3)


def test_no_disk_with_a_checkpoint_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint on any machine"):
        load(tmp_path)


def test_two_disks_have_all_parts_each(tmp_path):
    save(tmp_path, 3, keepers=(0, 1))
    assert (
        files_on(tmp_path, 0, 3, (0, 1)) == files_on(tmp_path, 1, 3, (0, 1)) == {MANIFEST, *sorted(FILES)[:2]}
    )


def test_older_ones_go_on_every_disk(tmp_path):
    save(tmp_path, 3, 6, 9, keep=1)
    assert [os.listdir(folder_of(tmp_path, KEEPERS, rank)) for rank in (0, 1, 3)] == [["step-000009"]] * 3


def test_a_disk_that_cannot_be_written_stops_the_save_on_all_and_keeps_the_old_one(tmp_path):
    save(tmp_path, 3)
    full = folder_of(tmp_path, KEEPERS, 3)
    full.rename(full.with_name("away"))
    full.write_text("a file in place of the folder")
    with pytest.raises(CheckpointError, match="rank 3 on node3 cannot save .*step-000006"):
        save(tmp_path, 6)
    assert (
        os.listdir(folder_of(tmp_path, KEEPERS, 0))
        == os.listdir(folder_of(tmp_path, KEEPERS, 1))
        == ["step-000003"]
    )
    full.unlink()
    full.with_name("away").rename(full)
    assert_loads(tmp_path, 3)
