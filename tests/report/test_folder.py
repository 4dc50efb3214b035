from pathlib import PurePosixPath

import pytest

from shoal.errors import ConfigError
from shoal.report.folder import free_beside, write_files


class Interrupting(str):
    """Content at which the user presses Ctrl-C."""

    __slots__ = ()

    def encode(self, *args):
        raise KeyboardInterrupt


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_text_and_bytes_arrive(tmp_path):
    write_files(tmp_path / "out", {PurePosixPath("a/x.png"): b"\x00", PurePosixPath("r.md"): "中文"})
    assert names(tmp_path / "out") == ["a", "a/x.png", "r.md"]
    assert (tmp_path / "out/r.md").read_text(encoding="utf-8") == "中文"


def test_an_interruption_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_files(tmp_path, {PurePosixPath("a.md"): "whole", PurePosixPath("b.md"): Interrupting("half")})
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write into .*file/out"):
        write_files(tmp_path / "file" / "out", {PurePosixPath("a"): ""})


def test_a_next_command_names_a_free_folderfree_beside_the_one_in_use(tmp_path):
    out = tmp_path / "out"
    assert free_beside(out) == out
    (out / "runs").mkdir(parents=True)
    (tmp_path / "out-2" / "runs").mkdir(parents=True)
    assert free_beside(out) == tmp_path / "out-3"
