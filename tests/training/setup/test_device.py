"""Where workers compute, on machines of several kinds; a machine is what torch says of it."""

import pytest
import torch

from shoal.config.read import read
from shoal.errors import ConfigError
from shoal.training.setup.device import group_kind, take_device


@pytest.fixture
def machine(monkeypatch):
    """A machine with so many GPUs, on which this is the worker of that number of so many."""
    taken = []

    def made(gpus, local_rank=None, workers_here=None):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "set_device", taken.append)
        for name, value in (("LOCAL_RANK", local_rank), ("LOCAL_WORLD_SIZE", workers_here)):
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, str(value))
        return taken

    return made


def flags(workers, *more):
    return read(None, ["--strategy", "ddp", "--workers", str(workers), *more])


def test_every_worker_takes_a_gpu_of_its_own(machine):
    taken = machine(gpus=4, local_rank=3, workers_here=4)
    assert take_device(flags(4)) == torch.device("cuda", 3)
    assert taken == [3]
    assert group_kind(flags(4), torch.device("cuda", 3)) == "nccl"


def test_links_need_messages_that_go_through_the_processor(machine):
    machine(gpus=2, local_rank=0, workers_here=2)
    linked = flags(2, "--link", "all:1gbit")
    assert group_kind(linked, torch.device("cuda", 0)) == "gloo"
    assert group_kind(linked, torch.device("cpu")) == "auto"


def test_workers_of_other_machines_are_not_counted(machine):
    machine(gpus=8, local_rank=5, workers_here=8)
    assert take_device(flags(16)) == torch.device("cuda", 5)


def test_too_few_gpus_are_left_alone_unless_asked_for(machine):
    machine(gpus=1, local_rank=1, workers_here=2)
    assert take_device(flags(2)) == torch.device("cpu")
    assert group_kind(flags(2), torch.device("cpu")) == "auto"
    shared = flags(2, "--device", "cuda")
    assert take_device(shared) == torch.device("cuda", 0)
    assert group_kind(shared, torch.device("cuda", 0)) == "gloo"  # nccl refuses two workers on one GPU


def test_threads_share_the_current_gpu(machine):
    machine(gpus=2)
    assert take_device(flags(2, "--launcher", "threads")) == torch.device("cuda", 0)


def test_a_group_that_was_chosen_stays(machine):
    machine(gpus=2, local_rank=0, workers_here=2)
    assert group_kind(flags(2, "--group", "gloo"), torch.device("cuda", 0)) == "gloo"


def test_a_gpu_that_is_not_there(machine):
    machine(gpus=0)
    with pytest.raises(ConfigError, match="no GPU on this machine"):
        take_device(flags(2, "--device", "cuda"))


def test_each_rank_has_the_device_of_its_place_and_all_exchange_through_the_host(machine):
    machine(gpus=1, local_rank=1, workers_here=3)
    unequal = flags(3, "--device", "cpu,cuda,cpu")
    assert [take_device(unequal, rank).type for rank in range(3)] == ["cpu", "cuda", "cpu"]
    assert {group_kind(unequal, torch.device(kind)) for kind in ("cpu", "cuda")} == {"gloo"}
    machine(gpus=0)
    assert take_device(unequal, 2) == torch.device("cpu")
    with pytest.raises(ConfigError, match="no GPU on this machine"):
        take_device(unequal, 1)
