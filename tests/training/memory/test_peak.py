"""The peak of a process's memory."""

import torch

from shoal.training.memory.peak import PeakMemory

MIB = 2**20


def test_memory_that_is_gone_again_counts_at_the_peak():
    peak = PeakMemory(torch.device("cpu"))
    kept = torch.ones(8 * MIB)
    del kept
    assert 31 * MIB < peak.read() < 40 * MIB  # the kernel counts pages in batches


def test_a_restart_forgets_peaks_and_not_what_is_there():
    peak = PeakMemory(torch.device("cpu"))
    kept, gone = torch.ones(4 * MIB), torch.ones(16 * MIB)
    del gone
    peak.restart()
    assert 15 * MIB < peak.read() < 24 * MIB
    assert len(kept) == 4 * MIB
