"""Bytes that go from one disk to another: exact, compared, and never half there."""

import hashlib
import os

import pytest
from apart import disks_of

from shoal.comm.threads.group import run_threads
from shoal.training.disks import transfer
from shoal.training.disks.transfer import Transfer, carry_out, to_next_disk

CONTENT = bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(transfer, "BLOCK_BYTES", 1000)


def carried(*transfers):
    """Make the transfers between two workers; the error of each."""

    def work(group):
        try:
            carry_out(group, transfers)
        except OSError as error:
            return error
        return None

    return run_threads(2, work)


def test_a_file_goes_over_in_blocks_and_is_continued(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(CONTENT)
    assert carried(Transfer(0, 1, source, target, 0, 1500)) == [None, None]
    assert target.read_bytes() == CONTENT[:1500]
    assert carried(Transfer(0, 1, source, target, 1500, len(CONTENT))) == [None, None]
    assert target.read_bytes() == CONTENT


def test_content_with_another_checksum_is_not_kept(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(CONTENT)
    target.write_bytes(b"old")
    wrong, right = (hashlib.sha256(each).hexdigest() for each in (b"other", CONTENT))
    errors = carried(Transfer(0, 1, source, target, 0, len(CONTENT), wrong))
    assert errors[0] is None
    assert wrong in str(errors[1])
    assert right in str(errors[1])
    assert target.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


@pytest.mark.parametrize("broken", ["source", "target", "short"])
def test_the_other_side_does_not_wait_for_one_that_cannot_read_or_write(tmp_path, broken):
    """And the transfers after it are made."""
    source, other = tmp_path / "source", tmp_path / "other"
    target = tmp_path / ("nowhere" if broken == "target" else "") / "target"
    if broken != "source":
        source.write_bytes(CONTENT)
    other.write_bytes(CONTENT)
    end = len(CONTENT) + 3000 * (broken == "short")
    checksum = hashlib.sha256(CONTENT).hexdigest()
    first = Transfer(0, 1, source, target, 0, end, checksum)
    errors = carried(first, Transfer(1, 0, other, tmp_path / "back", 0, len(CONTENT), checksum))
    assert isinstance(errors[1 if broken == "target" else 0], OSError)
    assert not target.exists()
    assert (tmp_path / "back").read_bytes() == CONTENT


def test_neighbours_in_the_ring_take_turns(tmp_path):
    disks = disks_of((0, 1, 2, 3, 4))
    transfers = to_next_disk(disks, [(rank, tmp_path / str(rank), 1, "") for rank in range(5)])
    assert [(each.sender, each.receiver) for each in transfers] == [(0, 1), (2, 3), (1, 2), (3, 4), (4, 0)]
