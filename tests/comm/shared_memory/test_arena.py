"""Shared memory that leaves nothing behind and cannot be confused with a stranger's."""

import gc
import os
import platform

import pytest
import torch
from torch.distributed import HashStore

from shoal.comm.shared_memory import arena as arena_module
from shoal.comm.shared_memory.arena import Arena
from shoal.comm.shared_memory.group import SharedMemoryGroup
from shoal.errors import JoinError


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_two_mappings_are_one_memory():
    ours = Arena.create(1000)
    theirs = Arena.open(ours.address)
    ours.memory[:10] = torch.arange(10, dtype=torch.uint8)
    assert theirs.memory[:10].tolist() == list(range(10))


def test_it_outlives_its_descriptors():
    ours = Arena.create(1000)
    theirs = Arena.open(ours.address)
    ours.release()
    theirs.release()
    ours.words[0] = 5
    assert theirs.words[0] == 5


def test_a_strangers_memory_is_refused():
    arena = Arena.create(1000)
    with pytest.raises(JoinError, match="another token"):
        Arena.open(arena.address._replace(token=1))
    with pytest.raises(JoinError, match="another size"):
        Arena.open(arena.address._replace(num_bytes=1 << 20))
    with pytest.raises(JoinError, match="cannot open"):
        Arena.open(arena.address._replace(descriptor=9999))


def test_no_process_can_remove_it():
    arena = Arena.create(1000)
    with open(f"/proc/self/fd/{arena.address.descriptor}", "r+b") as file, pytest.raises(OSError):  # noqa: PT011
        file.truncate(0)


def test_groups_and_buffers_keep_no_descriptors():
    group = SharedMemoryGroup.join(HashStore(), 0, 1)
    before = descriptors()
    for _ in range(20):
        smaller = group.split([0])
        smaller.empty(1000)
        smaller.close()
        del smaller
    gc.collect()
    assert descriptors() == before
    group.close()


def test_every_arm_machine_with_torch_has_a_fence():
    if platform.machine() in ("aarch64", "arm64"):
        for source in (arena_module._from_libatomic, arena_module._from_libstdcxx):
            source()()
    assert arena_module.find_fence() is not None
