"""Sizes that cannot fit are refused before anything starts; what may fit is not."""

import pytest

from shoal.config import checks
from shoal.config.read import read
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    "flags",
    [
        "--workers 1000000 --strategy ddp",
        "--model mlp --model.hidden 1000000,1000000",
        "--model resnet18 --model.width 100000",
        "--model transformer --model.width 1000000 --data synthetic --data.task text --data.shape 8",
        "--data synthetic --data.samples 1000000000000",
        "--data synthetic --data.shape 1000000,1000000",
        "--data synthetic --data.classes 1000000000000 --model linear",
    ],
)
def test_what_needs_more_memory_than_there_is_is_refused(flags):
    config = read(None, flags.split())
    with pytest.raises(ConfigError, match="at least .* GiB of memory.*this machine has .* GiB"):
        checks.check_resources(config, config.launch.workers)


@pytest.mark.parametrize("flags", ["", "--workers 8 --strategy ddp", "--model resnet18 --data cifar10"])
def test_what_fits_is_not(flags):
    config = read(None, flags.split())
    checks.check_resources(config, config.launch.workers)


def test_a_container_has_less_than_its_machine(monkeypatch):
    files = {
        "/proc/meminfo": ["MemTotal: 8388608 kB", "SwapTotal: 0 kB"],
        "/sys/fs/cgroup/memory.max": ["1073741824"],
    }
    monkeypatch.setattr(checks, "_lines", lambda path: files.get(path, []))
    assert checks.memory_bytes() == 2**30
    files["/sys/fs/cgroup/memory.max"] = ["max"]
    assert checks.memory_bytes() == 2**33


def test_more_threads_than_any_machine_could_use_are_refused():
    with pytest.raises(ConfigError, match="--threads 1000000 is too large: this machine has"):
        checks.check_threads(1_000_000)
