"""`shoal memory`: the memory of a training step, by formula and as measured."""

from dataclasses import dataclass

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.errors import ConfigError


@dataclass(frozen=True)
class MemoryFlags(Flags):
    """What is shown, and how."""

    formula_only: bool = False
    """Start no workers: show the formulas alone, for any number of workers."""
    techniques: bool = True
    """Also measure every technique that takes less memory; `--techniques false` leaves this table out."""
    json: bool = False
    """Print one line of JSON with every worker instead of a table of the fullest."""
    trust_code: bool = False
    """Run your own functions (package.module:function) that the recipe names."""


def run(given: Given[MemoryFlags]) -> int:
    """Show the memory of a worker in one training step: by formula and as measured, one row per component.

    Starts the workers, trains some steps with one sample per worker on generated data, and measures how much more
    memory each worker has then than an idle one. Memory that workers share is divided among them (PSS); on a GPU the
    numbers are those of torch's allocator. `other` is what was measured and belongs to no row.

    A second table has every technique that takes less memory, such as --memory.checkpoint and accumulation: what a
    worker has at the peak, with the run's own batch size, and the time of a step compared with the run as it is.
    `--memory.budget` of `shoal train` chooses among these.

    RECIPE and settings are those of `shoal train`: --model, --optimizer, --strategy, --workers.

    Start with:  shoal memory --model mlp --strategy zero --workers 2
    """
    from shoal.config.read import read
    from shoal.memory.measure import by_formula, measure
    from shoal.memory.table import as_json, as_table, fullest, techniques_as_text
    from shoal.memory.techniques import technique_rows
    from shoal.training.stop import Series

    flags = given.flags
    config = read(given.words[0] if given.words else None, given.settings, flags.trust_code)
    is_measured = not flags.formula_only
    workers = measure(config) if is_measured else [by_formula(config)]
    if not flags.json:
        text.show(as_table(config, fullest(workers), is_measured))
        if flags.techniques and is_measured:
            text.show("\nMeasuring techniques, each in new workers: some minutes (--techniques false: none)")
    rows: list[dict[str, object]] = []
    try:
        with Series():
            rows += technique_rows(config, is_measured) if flags.techniques else []
    except ConfigError as error:
        text.warn(f"techniques are not shown: {error}")
    if flags.json:
        text.show(as_json(config, workers, is_measured, rows))
        return 0
    if rows:
        text.show("\n" + techniques_as_text(config, rows))
    trusted = ["--trust-code"] * flags.trust_code
    text.next_step("shoal", "train", *given.words, *given.settings, *trusted)
    return 0


COMMAND = Command("memory", run, MemoryFlags, words="[RECIPE]", settings=("*",))
