"""Settings of the layouts: how one replica of a model is divided among workers."""

from dataclasses import dataclass
from typing import ClassVar

from shoal.config.kinds import Checked


@dataclass(frozen=True)
class LayoutCapabilities:
    """What a layout that divides the model can be combined with. `RunConfig` checks a run against it."""

    engines: tuple[str, ...] = ("torch",)
    """The engines that can compute its parts."""


@dataclass(frozen=True)
class TensorConfig(Checked):
    """Tensor parallelism: the workers divide single layers, and compute each of them together."""

    CAN: ClassVar = LayoutCapabilities()

    plan: str = ""
    """A TOML file that maps layers to cuts, such as fc1 = "column"; empty: automatic, for known orders of layers."""
