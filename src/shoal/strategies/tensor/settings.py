"""Settings of tensor parallelism."""

from dataclasses import dataclass
from typing import ClassVar

from shoal.config.choices import Checked
from shoal.config.feature import DIVIDED_MODEL, Row


@dataclass(frozen=True)
class TensorConfig(Checked):
    """Single layers, divided among workers that compute them together."""

    REFUSES: ClassVar[Row] = {
        **DIVIDED_MODEL,
        "--exchange compressed": "workers that divide a layer would save their residuals under one name",
    }

    plan: str = ""
    """A TOML file that maps layers to cuts, such as fc1 = "column"; empty: automatic, for known orders of layers."""
