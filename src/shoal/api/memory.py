"""`shoal.memory`: the memory of a training step, by formula and as measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from shoal.api.keywords import Settings
from shoal.api.settings import NO_RECIPE, config_of
from shoal.config.arguments import checks_arguments
from shoal.config.schema import RunConfig
from shoal.memory.measure import WorkerMemory, by_formula, measure
from shoal.memory.table import as_table, fullest, techniques_as_text
from shoal.memory.techniques import technique_rows
from shoal.training.stop import Series


@dataclass(frozen=True, repr=False)
class Memory:
    """The memory of every worker in one training step. Printed, it is the table of `shoal memory`."""

    config: RunConfig
    workers: tuple[WorkerMemory, ...]
    """Each with its components, by formula and as measured; a single one by formula alone."""
    is_measured: bool
    techniques: tuple[dict[str, object], ...] = ()
    """A row for each technique that takes less memory, if asked for."""

    @property
    def fullest(self) -> WorkerMemory:
        """The worker with the most memory."""
        return fullest(self.workers)

    def __repr__(self) -> str:
        table = as_table(self.config, self.fullest, self.is_measured)
        more = techniques_as_text(self.config, self.techniques) if self.techniques else ""
        return "\n\n".join(filter(None, (table, more)))


@checks_arguments
def memory(
    recipe: str | Path = NO_RECIPE,
    /,
    *,
    formula_only: bool = False,
    techniques: bool = False,
    trust_code: bool = False,
    **settings: Unpack[Settings],
) -> Memory:
    """The memory of each worker in one training step: by formula and, unless `formula_only`, as measured.

        shoal.memory(model="mlp", strategy="zero", workers=2).fullest.total

    Recipe and settings are as in `shoal.train`. `techniques` also measures every technique that takes less memory,
    each in new workers, which takes minutes.
    """
    config = config_of(recipe, settings, trust_code)
    with Series():
        workers = [by_formula(config)] if formula_only else measure(config)
        rows = technique_rows(config, not formula_only) if techniques else []
    return Memory(config, tuple(workers), not formula_only, tuple(rows))
