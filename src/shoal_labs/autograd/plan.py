"""How much the lab measures."""

from dataclasses import dataclass, replace

NETWORKS = ("mlp", "lenet")
ENGINES = ("dynamic", "static", "torch")
INPUT_SHAPE = (1, 28, 28)
OUTPUTS = 10


@dataclass(frozen=True)
class AutogradPlan:
    """Sizes and repetitions."""

    rounds: int
    """Rounds in which rivals take turns; a median needs them."""
    contest_s: float
    """Seconds after which a comparison begins no further round: a busy machine makes fewer, and takes no longer."""
    compilations: int
    """Of each network, all anew."""
    fresh_processes: int
    """In which the first compilation of each network is timed."""
    batch_size: int
    recurrences: tuple[int, ...]
    """How often the sub-expression of the caching experiment is written."""
    chain_sizes: tuple[int, ...]
    """Rows and columns of the matrices in the chain."""
    distinct: int = 100
    """Operations in the computation in which nothing recurs."""
    seed: int = 0
    quick: bool = False


FULL = AutogradPlan(
    rounds=41,
    contest_s=4.0,
    compilations=9,
    fresh_processes=5,
    batch_size=64,
    recurrences=(1, 2, 4, 8, 16),
    chain_sizes=(10, 30, 100, 300),
)
QUICK = AutogradPlan(
    rounds=11,
    contest_s=0.6,
    compilations=3,
    fresh_processes=4,
    batch_size=64,
    recurrences=(1, 4, 16),
    chain_sizes=(10, 100, 300),
    quick=True,
)


def plan_for(quick: bool, seed: int) -> AutogradPlan:
    """The plan of a run."""
    return replace(QUICK if quick else FULL, seed=seed)
