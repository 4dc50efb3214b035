"""A place in the world, given by hand: our names and the course's."""

import os
import subprocess
import sys

import pytest
import torch

from shoal.cli.train import COMMAND, place_of, take_gpu
from shoal.errors import ConfigError


def given(words):
    return COMMAND.parse(words.split()).flags


@pytest.mark.parametrize(
    "words",
    [
        "--rank 1 --world-size 2 --master host:29517",
        "--rank 1 --n_devices 2 --master_addr host --master_port 29517",
        "--rank=1 --world-size=2 --master=host:29517",
    ],
)
def test_both_sets_of_names_mean_the_same(words):
    assert place_of(given(words)) == (1, 2, "host", 29517)


def test_loopback_unless_the_user_says_otherwise_and_ipv6_in_brackets():
    assert place_of(given("--rank 0 --n_devices 2 --master_port 5")).host == "127.0.0.1"
    assert place_of(given("--rank 0 --n_devices 2 --master [::1]:5")) == (0, 2, "::1", 5)


def test_no_place_is_none_also_with_a_gpu_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert place_of(given("")) is None
    assert place_of(given("--gpu 0 --join-timeout 3")) is None


def test_the_gpu_is_the_only_one_this_worker_sees(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    take_gpu(given("--gpu 2").gpu)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"


def test_a_gpu_that_does_not_exist_is_refused_and_the_variable_stays(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="--gpu 99"):
        take_gpu(given("--gpu 99").gpu)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


PROGRAM = """
import os, sys
from shoal.cli.train import COMMAND
from shoal.cli.train import place_of, set_threads
from shoal.config.read import read

place = place_of(COMMAND.parse(sys.argv[2:]).flags)
assert set_threads(place, read(None, sys.argv[1].split()))
assert "torch" not in sys.modules
print(os.environ.get("OMP_NUM_THREADS"))
"""


@pytest.mark.parametrize(
    ("settings", "words", "said"),
    [
        ("", "", "None"),
        ("--threads 3", "", "3"),
        ("--strategy ddp --workers 64", "", "1"),
        ("--strategy ddp --workers 64 --threads 2", "", "2"),
        ("--strategy ddp --workers 64 --launcher threads", "", "None"),
        ("", "--rank 0 --world-size 64 --master 127.0.0.1:5", "1"),
        ("", "--rank 0 --world-size 64 --master localhost:5", "1"),
        ("", "--rank 0 --n_devices 64 --master_port 5", "1"),
        ("", "--rank 0 --world-size 64 --master 10.0.0.7:5", "None"),
        ("--threads 5", "--rank 0 --world-size 64 --master 127.0.0.1:5", "5"),
    ],
)
def test_workers_on_one_machine_divide_its_cores(settings, words, said):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", PROGRAM, settings, *words.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--rank 2 --world-size 2 --master a:1", "--rank 2 is not in a world of 2"),
        ("--rank 0", "--world-size is required"),
        ("--rank one --world-size 2 --master a:1", "--rank: expected an integer ≥ 0, got 'one'"),
        ("--rank 0 --world-size 2 --master a", "--master: expected text of the form host:port, got 'a'"),
        ("--rank 0 --world-size 2 --master :5", "--master: expected text of the form host:port, got ':5'"),
        ("--rank 0 --world-size 2", "--master is required"),
    ],
)
def test_half_a_place_is_refused(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        place_of(given(words))


def test_how_long_to_wait_for_the_others():
    assert given("").join_timeout == 60
    assert given("--join-timeout 2.5").join_timeout == 2.5
    for word in ("soon", "-1", "0", "nan", "inf"):
        with pytest.raises(ConfigError, match="--join-timeout: expected a number ≥ 0.001 and ≤ "):
            given(f"--join-timeout={word}")
