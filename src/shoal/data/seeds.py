"""Seeds and random generators, each determined by its purpose, and hashes of sample indices."""

import hashlib
import threading

import torch
from torch import Tensor

# Odd constants of the 64-bit mixing function splitmix64 (Steele, Lea, Flood 2014), as signed numbers.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)

ONE_AT_A_TIME = threading.Lock()
"""Held by a thread while torch's shared generator has that thread's own state."""


def seed_for(*purpose: int | str) -> int:
    """A 63-bit hash of the purpose, so that neighbouring seeds are uncorrelated."""
    digest = hashlib.sha256("/".join(map(repr, purpose)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(*purpose: int | str) -> torch.Generator:
    """A generator seeded by its purpose.

    >>> a = torch.randint(100, (3,), generator=generator_for("order", 7, 1))
    >>> b = torch.randint(100, (3,), generator=generator_for("order", 7, 1))
    >>> bool((a == b).all())
    True
    """
    return torch.Generator().manual_seed(seed_for(*purpose))


def hashed(indices: Tensor, seed: int) -> Tensor:
    """64 hash bits for each index: splitmix64 of a counter that starts at the seed.

    >>> a, b = hashed(torch.tensor([5, 6]), seed=1), hashed(torch.tensor([6]), seed=1)
    >>> bool(a[1] == b[0])
    True
    """
    bits = indices * _STEP + seed
    bits = (bits ^ _shifted(bits, 30)) * _MIX_1
    bits = (bits ^ _shifted(bits, 27)) * _MIX_2
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros; torch fills with the sign."""
    return bits >> places & ((1 << 64 - places) - 1)
