"""Every check is fed both outcomes."""

from pathlib import Path

import pytest

from shoal.cli.doctor import checks as doctor
from shoal.cli.doctor.checks import GIB, Outcome, checks
from shoal.cli.doctor.probes import DataFacts, DockerFacts, Memory, TorchFacts

CPU_BUILD = TorchFacts("2.13.0+cpu")
CUDA_BUILD = TorchFacts("2.13.0", cuda="12.8")
ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100a", "compute_120")
OLD_GPU = TorchFacts("2.13.0", "", "12.8", ("A100", "V100"), ((8, 0), (7, 0)), ARCHS)


def always(answer):
    return lambda *_: answer


FINE = {
    "system": doctor.system("Linux", "6.1", "x86_64"),
    "python": doctor.python((3, 11, 0)),
    "torch": doctor.torch(always(CPU_BUILD)),
    "torch, newer": doctor.torch(always(TorchFacts("2.13.0a0+git"))),
    "cuda": doctor.cuda(always(TorchFacts("2.13.0", cuda="12.8", gpus=("H200",))), always((12, 4))),
    "cores": doctor.cores(always(2.0)),
    "memory": doctor.memory(always(Memory(8 * GIB, 4 * GIB))),
    "memory, unknown": doctor.memory(always(None)),
    "memfd": doctor.memfd(always("")),
    "shm": doctor.shm(always(GIB)),
    "port": doctor.port(always("")),
    "docker": doctor.docker(always(DockerFacts(True, server="28.1"))),
    "namespaces": doctor.namespaces(always(True), always(True)),
    "data": doctor.data(always(DataFacts(("digits",), ("mnist",)))),
    "folder": doctor.folder(always(Path("/home")), always(""), always(9 * GIB)),
}

# name: (outcome, status, a word of what was found, a word of the repair)
BROKEN = {
    "system": (doctor.system("Darwin", "24", "arm64"), "WARN", "Darwin 24", "docs/en/start/install.md"),
    "python": (doctor.python((3, 10, 9)), "FAIL", "3.10.9", "PYTHON=python3.11"),
    "no torch": (doctor.torch(always(TorchFacts(error="No module"))), "FAIL", "No module", "constraints.txt"),
    "old torch": (doctor.torch(always(TorchFacts("2.7.1+cpu"))), "FAIL", "2.7.1", "constraints.txt"),
    "no driver": (doctor.cuda(always(CPU_BUILD), always(None)), "WARN", "no NVIDIA driver", "nvidia-driver"),
    "CPU build": (doctor.cuda(always(CPU_BUILD), always((12, 4))), "WARN", "CPU alone", "pip install"),
    "old driver": (doctor.cuda(always(CUDA_BUILD), always((11, 4))), "WARN", "up to 11.4", "reboot"),
    "hidden GPU": (
        doctor.cuda(always(CUDA_BUILD), always((12, 4))),
        "WARN",
        "sees no GPU",
        "CUDA_VISIBLE_DEVICES",
    ),
    "old GPU": (
        doctor.cuda(always(OLD_GPU), always((12, 8))),
        "WARN",
        "V100 has compute capability 7.0, but this torch is compiled for sm_75",
        "docs/en/start/install.md",
    ),
    "cores": (doctor.cores(always(0.5)), "WARN", "0.5", "--cpus"),
    "memory": (doctor.memory(always(Memory(8 * GIB, GIB))), "WARN", "1.0 of 8.0 GiB", "--micro-batch"),
    "memfd": (doctor.memfd(always("denied")), "WARN", "denied", "/proc"),
    "no shm": (doctor.shm(always(None)), "WARN", "none", "mount"),
    "small shm": (doctor.shm(always(64 * 2**20)), "WARN", "0.06 GiB", "--shm-size"),
    "port": (doctor.port(always("unreachable")), "FAIL", "unreachable", "ip link set lo up"),
    "no docker": (doctor.docker(always(DockerFacts(False))), "WARN", "not installed", "apt install"),
    "docker asleep": (
        doctor.docker(always(DockerFacts(True, error="Cannot connect"))),
        "WARN",
        "Cannot connect",
        "systemctl start",
    ),
    "docker denied": (
        doctor.docker(always(DockerFacts(True, error="permission denied while"))),
        "WARN",
        "permission denied",
        "usermod",
    ),
    "no ip": (doctor.namespaces(always(False), always(True)), "WARN", "`ip` is missing", "iproute2"),
    "no rights": (doctor.namespaces(always(True), always(False)), "WARN", "not allowed", "NET_ADMIN"),
    "no digits": (doctor.data(always(DataFacts((), ("digits",)))), "FAIL", "digits", "pip install"),
    "no torch for data": (doctor.data(always(None)), "WARN", "torch", "pip install"),
    "no data folder": (
        doctor.data(always(DataFacts(missing_folder="/absent/folder"))),
        "WARN",
        "/absent/folder",
        "mkdir -p /absent/folder",
    ),
    "locked folder": (
        doctor.folder(always(Path("/")), always("Read-only file system"), always(9 * GIB)),
        "FAIL",
        "Read-only",
        "--runs-dir",
    ),
    "full disk": (doctor.folder(always(Path("/")), always(""), always(1)), "WARN", "0.0 GiB", "--runs-dir"),
}


@pytest.mark.parametrize(
    ("capability", "expected"),
    {(7, 0): False, (8, 6): True, (9, 0): True, (10, 0): True, (10, 3): False, (12, 1): True}.items(),
)
def test_machine_code_runs_on_its_major_version_and_other_code_on_later_ones(capability, expected):
    assert doctor.runs_on(capability, ARCHS) == expected
    assert doctor.runs_on(capability, ()), "not known"


@pytest.mark.parametrize("name", FINE)
def test_what_is_fine_is_ok_and_needs_no_repair(name):
    assert FINE[name].status == "OK", FINE[name]
    assert FINE[name].found
    assert FINE[name].repair == ""


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_says_so_and_names_the_repair(name):
    outcome, status, found, repair = BROKEN[name]
    assert outcome.status == status
    assert found in outcome.found
    assert repair in outcome.repair


def test_the_data_line_tells_what_is_here_and_what_can_be_fetched():
    outcome = doctor.data(always(DataFacts(("digits",), ("mnist",))))
    assert outcome.found == "here: digits; `shoal data fetch` gets: mnist"


def test_the_folder_of_runs_is_the_one_that_must_be_writable(tmp_path):
    (tmp_path / "runs").mkdir()
    asked = []
    doctor.folder(always(tmp_path), lambda place: asked.append(place) or "", always(9 * GIB))
    assert asked == [tmp_path / "runs"]


def test_a_check_that_breaks_is_a_warning_and_the_others_go_on():
    def broken():
        raise OSError("no such probe")

    first, second = checks({"bad": broken, "good": lambda: Outcome("OK", "fine")})
    assert (first.name, first.status) == ("bad", "WARN")
    assert "no such probe" in first.found
    assert (second.name, second.status) == ("good", "OK")


def test_this_machine_can_be_examined():
    found = checks()
    assert [check.name for check in found] == list(doctor.CHECKS)
    assert all(check.found for check in found)
    assert all(bool(check.repair) == (check.status != "OK") for check in found)
    assert not any("could not be examined" in check.found for check in found)
