"""Freed memory goes back to the system."""

import torch

from shoal.memory.process import pss
from shoal.strategies.pieces.freed_memory import return_freed_memory


def test_freed_blocks_between_blocks_in_use_are_given_back():
    return_freed_memory()
    before = pss()
    # The C library maps a first large block; once that is freed, blocks of its size come from the heap.
    first = torch.ones(2**18)
    del first
    blocks = [torch.ones(2**18) for _ in range(64)]  # 64 MiB
    kept = blocks[::32]
    del blocks
    return_freed_memory()
    assert pss() - before < 8 * 2**20
    assert all(block.all() for block in kept)
