"""Events of workers that do not share a disk: rank 0's folder has all, and a lost disk gets its own back."""

import shutil

import pytest

from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError
from shoal.events.file import EventFile, read_events
from shoal.events.folder import RunFolder
from shoal.training.disks.disks import Disks
from shoal.training.disks.event_copies import EventCopies

KEEPERS = (0, 1, 1, 3)
DISKS = Disks(KEEPERS, tuple(f"node{keeper}" for keeper in KEEPERS))


def folder_of(parent, keeper):
    return RunFolder(parent / f"disk{keeper}")


def attempt(parent, steps):
    """An attempt of a run: each worker writes a start and some steps, and copies after each."""

    def work(group):
        folder = folder_of(parent, KEEPERS[group.rank])
        folder.path.mkdir(parents=True, exist_ok=True)
        copies = EventCopies(folder, group, DISKS)
        copies.restore()
        with EventFile(folder.events(group.rank)) as events:
            events.append({"event": "start", "step": steps[0], "rank": group.rank})
            for step in steps:
                events.append({"event": "step", "step": step, "totals_ns": {}, "seconds": 0.0})
                copies.send(events)
            events.append({"event": "failed", "error": "as after a kill: it is copied by no one"})

    run_threads(4, work)


def steps_in(parent, keeper, rank):
    return [record["step"] for record in read_events(folder_of(parent, keeper).events(rank), "step")]


def test_rank_0_has_all_events_and_each_disk_those_of_the_one_before(tmp_path):
    attempt(tmp_path, [0, 1, 2])
    assert [steps_in(tmp_path, 0, rank) for rank in range(4)] == [[0, 1, 2]] * 4
    there = {
        keeper: sorted(path.name[11] for path in folder_of(tmp_path, keeper).path.iterdir())
        for keeper in (1, 3)
    }
    assert there == {1: ["0", "1", "2"], 3: ["1", "2", "3"]}


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_lost_disk_gets_its_events_back_up_to_the_last_copy(tmp_path, lost):
    attempt(tmp_path, [0, 1, 2])
    shutil.rmtree(folder_of(tmp_path, lost).path)
    attempt(tmp_path, [3, 4])
    for rank, keeper in enumerate(KEEPERS):
        assert steps_in(tmp_path, 0, rank) == steps_in(tmp_path, keeper, rank) == [0, 1, 2, 3, 4]


def test_a_folder_that_was_away_for_an_attempt_gets_the_longer_file(tmp_path):
    attempt(tmp_path, [0])
    shutil.copytree(folder_of(tmp_path, 3).path, tmp_path / "away")
    attempt(tmp_path, [1, 2])
    shutil.rmtree(folder_of(tmp_path, 3).path)
    (tmp_path / "away").rename(folder_of(tmp_path, 3).path)
    attempt(tmp_path, [3])
    assert steps_in(tmp_path, 0, 3) == steps_in(tmp_path, 3, 3) == [0, 1, 2, 3]


def test_a_disk_that_cannot_take_a_copy_is_named(tmp_path):
    (folder_of(tmp_path, 1).path / "events.rank0.jsonl").mkdir(parents=True)
    with pytest.raises(ConfigError, match="rank 1 on node1 cannot copy events"):
        attempt(tmp_path, [0])
