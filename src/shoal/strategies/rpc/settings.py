"""Settings of `rpc`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from shoal.config.choices import Checked
from shoal.config.feature import OWN_ENGINES, SHARES, Row, refused
from shoal.config.sections.values import Count


@dataclass(frozen=True)
class RpcConfig(Checked):
    """Rank 0 drives; the other workers hold consecutive layers and answer remote procedure calls (torch RPC)."""

    REFUSES: ClassVar[Row] = {
        **refused("--device cuda", "--precision tf32", "--precision bf16", "--clip-norm"),
        **refused("--bottleneck", "--fault", "--link", why="conditions do not reach its workers"),
        "--exchange": "each weight has one owner, so there is nothing to exchange",
        "--launcher threads": "torch has one RPC agent in each process",
        "--micro-batch": "it does not accumulate gradients; --strategy.microbatches makes stages overlap",
        **SHARES,
        **OWN_ENGINES,
    }
    FEWEST_WORKERS: ClassVar = 2

    name: Literal["rpc"] = "rpc"
    microbatches: Count = 1
    """Parts of a batch that are under way at once: stages overlap. Gradients are then added in the order of arrival."""
    cut: str = ""
    """Layers that begin a stage, such as "fc1"; empty: stages of about equal numbers of parameters."""
