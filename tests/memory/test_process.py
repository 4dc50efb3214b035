"""Memory as the system counts it: what is touched, once for all who share it."""

import torch

from shoal.comm.shared_memory.arena import Arena
from shoal.memory import process
from shoal.strategies.pieces.freed_memory import return_freed_memory

MIB = 2**20


def test_memory_counts_when_it_is_touched_and_until_it_is_freed():
    return_freed_memory()  # so that the C library has no touched memory to reuse
    before = process.pss()
    reserved = torch.empty(64 * MIB, dtype=torch.uint8)
    assert process.pss() - before < 8 * MIB
    reserved.fill_(1)
    assert 60 * MIB < process.pss() - before < 72 * MIB
    del reserved
    return_freed_memory()  # the C library may have taken it from its heap
    assert process.pss() - before < 8 * MIB


def test_memory_of_a_group_is_found_by_its_address():
    arena = Arena.create(4 * MIB)
    arena.memory.fill_(1)
    address = arena.memory.data_ptr()
    found = process.shared_mappings()
    assert 4 * MIB <= found[address].pss <= 5 * MIB
    assert torch.zeros(10).data_ptr() not in found


def test_tensors_that_share_memory_count_once():
    whole = torch.zeros(100)
    found = process.storages_of([whole[:50], whole[50:], torch.zeros(3), torch.empty(0)])
    assert sorted(found.values()) == [12, 400]
