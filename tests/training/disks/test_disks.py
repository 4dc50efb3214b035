"""Which workers see the same run folder, and who keeps whose parts."""

import pytest
from apart import disks_of

from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError
from shoal.events.folder import create
from shoal.training.disks.disks import Disks, find_disks


def found(parent, places, make=lambda folder, rank: folder.mkdir(parents=True, exist_ok=True)):
    """What the workers find whose folders are on these disks."""

    def work(group):
        folder = parent / places[group.rank] / "run"
        return find_disks(group, folder, lambda: make(folder, group.rank))

    return run_threads(len(places), work)


@pytest.mark.parametrize(
    ("places", "keepers"),
    [("a", (0,)), ("aaa", (0, 0, 0)), ("aabb", (0, 0, 2, 2)), ("aab", (0, 0, 2)), ("abab", (0, 1, 0, 1))],
)
def test_all_workers_find_the_same_disks_and_leave_nothing_behind(tmp_path, places, keepers):
    disks = found(tmp_path, places)
    assert [each.keepers for each in disks] == [keepers] * len(places)
    assert disks[0].is_one == (len(set(places)) == 1)
    assert [list((tmp_path / place / "run").iterdir()) for place in places] == [[]] * len(places)


def test_a_folder_of_another_run_on_one_disk_is_an_error_on_all_workers(tmp_path):
    (tmp_path / "b" / "run").mkdir(parents=True)
    (tmp_path / "b" / "run" / "config.toml").touch()
    errors = []

    def work(group):
        folder = tmp_path / "aabb"[group.rank] / "run"
        try:
            find_disks(group, folder, lambda: create(folder.parent, folder.name, ""))
        except ConfigError as error:
            errors.append(error.message)

    run_threads(4, work)
    assert len(errors) == 4
    assert set(errors) == {errors[0]}
    assert "rank 2" in errors[0]
    assert f"{tmp_path / 'b' / 'run'} is not empty" in errors[0]


def test_a_disk_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "b").write_text("a file in place of the folder")
    with pytest.raises(ConfigError, match=r"rank 1 on .*cannot write the run folder"):
        found(tmp_path, "ab")


def test_each_part_is_on_its_own_disk_and_on_the_next_one():
    disks = disks_of((0, 0, 2, 3, 3))
    assert [disks.copier_of(rank) for rank in range(5)] == [2, 2, 3, 0, 1]
    kept = {keeper: [rank for rank in range(5) if disks.keep(rank, keeper)] for keeper in disks.ring}
    assert kept == {0: [0, 1, 3, 4], 2: [0, 1, 2], 3: [2, 3, 4]}


def test_one_disk_has_no_next_one():
    disks = Disks.one(4)
    assert disks.is_one
    assert [disks.keeps(rank) for rank in range(4)] == [True, False, False, False]
