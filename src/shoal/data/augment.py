"""Random augmentation of a whole batch of pictures, determined for each sample by its index."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal.data.seeds import hashed, seed_for


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
