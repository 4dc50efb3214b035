"""Random augmentation of a whole batch of pictures, determined for each sample by its index."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal.data.seeds import seed_for

# Odd constants of the 64-bit mixing function splitmix64 (Steele, Lea, Flood 2014), as signed numbers.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


@dataclass(frozen=True)
class Augment:
    """Shift each picture by up to `shift` pixels in each direction, filling with black; mirror it half of the time.

    The random bits of a sample are a hash of (seed, epoch, sample index), so the result does not depend on how a step
    is divided among workers and micro-batches, and a resumed run needs no saved state.

    Cost: one gather over the batch, on the batch's device.
    """

    shift: int = 4
    mirror: bool = True

    def __call__(self, pictures: Tensor, indices: Tensor, seed: int, epoch: int) -> Tensor:
        """The augmented batch [batch, channels, height, width]; `indices` are the indices of its samples."""
        bits = hashed(indices.to(pictures.device), seed_for("augment", seed, epoch))
        places = 2 * self.shift + 1
        down = (bits & 0xFFFF) % places
        right = (bits >> 16 & 0xFFFF) % places
        mirrored = (bits >> 32 & 1).bool() & self.mirror

        channels, height, width = pictures.shape[1:]
        rows = torch.arange(height, device=pictures.device) + down[:, None]
        columns = torch.arange(width, device=pictures.device)
        columns = torch.where(mirrored[:, None], columns.flip(0), columns) + right[:, None]
        padded = F.pad(pictures, (self.shift,) * 4)
        pixels = rows[:, :, None] * padded.shape[-1] + columns[:, None, :]
        source = pixels.flatten(1).unsqueeze(1).expand(-1, channels, -1)
        return padded.flatten(2).gather(2, source).view(pictures.shape)


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
