"""How near a process is to its limits of memory."""

import resource

import pytest

from shoal.training.memory import limits
from shoal.training.memory.limits import nearest_limit

MIB = 2**20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A process of 100 MiB in a container, on a machine that is half full."""
    process, cgroups = tmp_path / "self", tmp_path / "cgroup"
    inner = cgroups / "outer" / "inner"
    process.mkdir()
    inner.mkdir(parents=True)
    (process / "status").write_text("Name:\tpython\nVmPeak:\t102400 kB\nVmData:\t51200 kB\n")
    (process / "cgroup").write_text("0::/outer/inner\n")
    (inner / "memory.max").write_text("max\n")
    (cgroups / "outer" / "memory.max").write_text(f"{200 * MIB}\n")
    (cgroups / "outer" / "memory.stat").write_text(f"anon {150 * MIB}\nfile {90 * MIB}\nshmem {20 * MIB}\n")
    (tmp_path / "meminfo").write_text("MemTotal: 4096 kB\nMemAvailable: 2048 kB\n")
    monkeypatch.setattr(limits, "PROCESS", process)
    monkeypatch.setattr(limits, "CGROUPS", cgroups)
    monkeypatch.setattr(limits, "MACHINE", tmp_path / "meminfo")
    return process


def test_the_container_counts_without_pages_of_files(system):
    assert nearest_limit() == {"name": "container", "used": 170 * MIB, "limit": 200 * MIB}


def test_a_limit_of_the_process_is_nearer(system, monkeypatch):
    given = {resource.RLIMIT_AS: 110 * MIB, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (given[kind], 0))
    assert nearest_limit() == {"name": "ulimit -v", "used": 100 * MIB, "limit": 110 * MIB}


def test_without_a_container_the_machine_is_left(system):
    (system / "cgroup").write_text("0::/\n")
    assert nearest_limit() == {"name": "machine", "used": 2048 * 1024, "limit": 4096 * 1024}


def test_a_system_that_does_not_say_has_no_limit(system):
    (system / "status").unlink()
    assert nearest_limit() is None
