"""The probes on the machine at hand: they answer, and within reason."""

import os
import stat
from pathlib import Path

import pytest

from shoal.cli.doctor import probes


def test_torch_is_described():
    import torch

    facts = probes.torch_facts()
    assert facts.version == torch.__version__
    assert len(facts.gpus) == torch.cuda.device_count()


def test_cores_and_memory_are_positive():
    assert 0 < probes.usable_cores() <= os.cpu_count()
    known = probes.memory()
    assert known is None or 0 < known.available <= known.total


def test_a_folder_that_takes_files_and_one_that_does_not(tmp_path):
    assert probes.write_error(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert probes.write_error(tmp_path / "absent") == "No such file or directory"
    assert probes.free_bytes(tmp_path) > 0


def test_data_folders_that_were_named_and_do_not_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SHOAL_DATA", raising=False)
    assert probes.data_sets() == probes.DataFacts(("digits", "alice"), ("mnist", "fashion-mnist", "cifar10"))
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "absent"))
    assert probes.data_sets() == probes.DataFacts(missing_folder=str(tmp_path / "absent"))
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    assert probes.data_sets().here == ("digits", "alice")


def fake_docker(tmp_path, monkeypatch, script):
    client = tmp_path / "docker"
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 28.1.0", probes.DockerFacts(True, server="28.1.0")),
        (
            "echo 'Cannot connect' >&2; echo more >&2; exit 1",
            probes.DockerFacts(True, error="Cannot connect"),
        ),
        ("exit 1", probes.DockerFacts(True, error="no answer")),
    ],
)
def test_docker_answers_or_its_words_are_kept(tmp_path, monkeypatch, script, expected):
    fake_docker(tmp_path, monkeypatch, script)
    assert probes.docker() == expected


def test_docker_may_be_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probes.docker() == probes.DockerFacts(installed=False)


def test_the_home_folder_is_not_given_away(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ada"))
    assert probes.with_tilde("/home/ada/project") == "~/project"
    assert probes.with_tilde("/home/adam/project") == "/home/adam/project"
