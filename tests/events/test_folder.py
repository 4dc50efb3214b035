"""The run folder: a new one for every run, or a sentence."""

import os

import pytest

from shoal.errors import ConfigError
from shoal.events.folder import create, held, remove_unfinished, temporary_beside, write_whole


def test_automatic_names_never_collide(tmp_path):
    assert [create(tmp_path, "", "run").path.name for _ in range(3)] == ["run", "run-2", "run-3"]


def test_a_taken_name_is_refused_with_the_way_on(tmp_path):
    folder = create(tmp_path, "mine", "unused")
    folder.config.write_text("seed = 0\n")
    with pytest.raises(ConfigError, match=r"is not empty\n.*--resume"):
        create(tmp_path, "mine", "unused")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write the run folder"):
        create(tmp_path / "file", "", "run")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "result.json"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\udcff")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_what_a_killed_process_was_writing_is_removed_and_nothing_else(tmp_path):
    folder = create(tmp_path, "mine", "unused")
    whole, half = folder.checkpoints / "step-000003", folder.checkpoints / "step-000007.tmp"
    for path in (whole, half):
        path.mkdir(parents=True)
        (path / "rank0.safetensors").write_text("tensors")
    write_whole(folder.config, "seed = 0\n")
    temporary_beside(folder.model).write_text("half of the weights")
    remove_unfinished(folder)
    assert sorted(path.name for path in folder.path.rglob("*")) == [
        "checkpoints",
        "config.toml",
        "rank0.safetensors",
        "step-000003",
    ]


def test_a_run_that_is_still_going_cannot_be_taken(tmp_path):
    folder = create(tmp_path, "mine", "unused")
    with held(folder), pytest.raises(ConfigError, match="in use by another process"), held(folder):
        pass
    with held(folder):
        assert not any(folder.path.iterdir()), (
            "nothing is left behind, nothing has to be cleaned up after a death"
        )


def test_a_process_that_was_forked_does_not_keep_the_run(tmp_path):
    """Loaders of samples live a few seconds longer than a worker that was killed."""
    folder = create(tmp_path, "mine", "unused")
    begun, begin = os.pipe()
    may_end, end = os.pipe()
    with held(folder):
        child = os.fork()
        if not child:
            os.write(begin, b"1")
            os.read(may_end, 1)
            os._exit(0)
        os.read(begun, 1)
    try:
        with held(folder):
            pass
    finally:
        os.write(end, b"1")
        os.waitpid(child, 0)
