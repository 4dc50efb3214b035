"""Settings of memory: which parts of a training step are recomputed, moved elsewhere, or stored in fewer bits."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.choices import Checked
from shoal.config.kinds import AtLeast, Matching
from shoal.errors import ConfigError

UNITS: dict[str, int] = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", start=1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)},
}
"""The bytes of each unit of a size."""

Size = Annotated[str, Matching(rf"\d+(\.\d+)?({'|'.join(UNITS)})", "200MB, 1.5GiB", "SIZE")]


def bytes_of(size: str) -> int:
    """The bytes of a size.

    >>> bytes_of("200MB"), bytes_of("1.5GiB")
    (200000000, 1610612736)
    """
    found = re.fullmatch(r"([\d.]+)([A-Za-z]+)", size)
    assert found is not None  # `Size` has been checked
    return int(float(found[1]) * UNITS[found[2]])


@dataclass(frozen=True)
class MemoryConfig(Checked):
    """What a training step keeps in memory, and how. At the defaults nothing is changed."""

    checkpoint: Annotated[int, AtLeast(0)] = 0
    """Activation checkpointing: recompute every n-th block in backward instead of keeping its activations; 0: none."""
    offload: Literal["none", "host", "file"] = "none"
    """Where saved activations wait for backward: on the device, in the host's memory (for a GPU), or in a file."""
    offload_dir: str = ""
    """Folder of the file of --memory.offload file; empty: $TMPDIR, or /var/tmp."""
    state_bits: int = 32
    """Bits of each element of optimizer state; 8: in blocks, each with a scale of its own."""
    step_in_backward: bool = False
    """Update each parameter when its gradient is final in backward, and free the gradient at once."""
    parameters: Literal["float32", "bf16"] = "float32"
    """Precision in which parameters are stored; bf16: updates are rounded stochastically."""
    return_freed: bool = False
    """Give memory back to the system when it is freed, instead of keeping it for later use (CPU); steps take longer."""
    budget: Size | None = None
    """Memory of each worker for training, such as 200MB: the fastest settings that fit are measured and used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.offload_dir and self.offload != "file":
            raise ConfigError(
                f"--memory.offload_dir has no effect with --memory.offload {self.offload}",
                "Use --memory.offload file, or leave offload_dir out.",
            )
        if self.state_bits not in (32, 8):
            raise ConfigError(f"--memory.state_bits: expected 32 or 8, got {self.state_bits}")
        if self.budget is not None and self.budget_bytes == 0:
            raise ConfigError(
                f"--memory.budget {self.budget} is no memory at all", "Use a size such as 200MB."
            )

    @property
    def budget_bytes(self) -> int | None:
        """The budget in bytes."""
        return None if self.budget is None else bytes_of(self.budget)
