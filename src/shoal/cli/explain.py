"""`shoal explain`: an all-reduce algorithm round by round, or a pipeline schedule stage by stage.

Both are drawn from the code or the data that a run executes.
"""

import ast
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.cli.text import write_file
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast, AtMost, kinds_of, literals
from shoal.config.sections.exchange import ByConfig
from shoal.config.sections.values import is_own
from shoal.errors import ConfigError, unknown

if TYPE_CHECKING:
    from shoal.strategies.pipeline.schedule import ActionKind

WORKERS, STAGES, MICROBATCHES = 4, 4, 8


@dataclass(frozen=True)
class ExplainFlags(Flags):
    """How large, and where to draw it."""

    workers: Annotated[int, AtLeast(1), AtMost(256)] | None = None
    """Of an algorithm: number of workers (default: 4)."""
    stages: Annotated[int, AtLeast(1), AtMost(32)] | None = None
    """Of a schedule: number of stages (default: 4)."""
    microbatches: Annotated[int, AtLeast(1), AtMost(64)] | None = None
    """Of a schedule: number of micro-batches (default: 8)."""
    weights_once: bool = False
    """Of a schedule: compute all weight gradients at once, at the end of the step."""
    svg: Path | None = None
    """Draw it into this file, too; - writes the drawing, and nothing else, to standard output."""


def run(given: Given[ExplainFlags]) -> int:
    """Show an all-reduce algorithm round by round, or a pipeline schedule stage by stage.

    Start with:  shoal explain 1f1b --stages 4 --microbatches 8
    """
    flags = given.flags
    if not given.words:
        if flags != ExplainFlags():
            raise ConfigError("NAME is required", "`shoal explain` lists the names.")
        text.show(COMMAND.page())
        return 0
    name = given.words[0]
    words, drawing = _schedule(name, flags) if _is_schedule(name) else _algorithm(name, flags)
    if str(flags.svg) == "-":
        text.show(drawing.rstrip("\n"))
        return 0
    text.show(words)
    if flags.svg is not None:
        write_file(flags.svg, drawing)
        text.show(f"wrote {flags.svg}")
    return 0


def _is_schedule(name: str) -> bool:
    from shoal.strategies.pipeline.schedules import SCHEDULES

    return name in SCHEDULES or is_own(name)


def _schedule(name: str, flags: ExplainFlags) -> tuple[str, str]:
    """A schedule as text and as a drawing."""
    from shoal.explain.pipeline import as_grid, explain_schedule
    from shoal.explain.timeline_svg import as_drawing

    if flags.workers is not None:
        raise ConfigError(
            f"--workers has no effect on the schedule {name}", "Give --stages and --microbatches."
        )
    stages = STAGES if flags.stages is None else flags.stages
    microbatches = MICROBATCHES if flags.microbatches is None else flags.microbatches
    explanation = explain_schedule(name, stages, microbatches, flags.weights_once)
    return as_grid(explanation, text.page_width(), _paint), as_drawing(explanation)


def _algorithm(name: str, flags: ExplainFlags) -> tuple[str, str]:
    """An algorithm as text and as a drawing."""
    from shoal.comm.algorithms import ALGORITHMS
    from shoal.explain.rounds import as_svg, as_text, explain
    from shoal.strategies.pipeline.schedules import SCHEDULES

    if name not in ALGORITHMS:
        raise ConfigError(unknown("algorithm or schedule", name, [*ALGORITHMS, *SCHEDULES]))
    for flag in ("stages", "microbatches", "weights_once"):
        if getattr(flags, flag) not in (None, False):
            spelled = flag.replace("_", "-")
            raise ConfigError(f"--{spelled} has no effect on the algorithm {name}", "Give --workers.")
    explanation = explain(name, WORKERS if flags.workers is None else flags.workers)
    return as_text(explanation), as_svg(explanation)


def _paint(kind: "ActionKind | None", words: str) -> str:
    """The colours of a grid: forward blue, backward yellow, weight gradients green, updates magenta, idle dim."""
    if kind is None:
        return text.dim(words)
    colours = {"F": "blue", "B": "yellow", "I": "yellow", "W": "green", "U": "magenta"}
    return text.on_colour(words, colours[kind.value])


def _names() -> list[str]:
    """The end of the page. Names and sentences of algorithms are read from the source: to import it loads torch."""
    from shoal.explain.pipeline import summary_of
    from shoal.strategies.pipeline.schedules import SCHEDULES

    tree = ast.parse((resources.files("shoal.comm") / "algorithms.py").read_text("utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    algorithms = {
        name: (ast.get_docstring(functions[name]) or "").splitlines()[0]
        for name in literals(kinds_of(ByConfig)["algorithm"])
    }
    return [
        "Pipeline schedules, with p stages and m micro-batches:",
        text.rows({name: summary_of(name) for name in SCHEDULES}),
        "All-reduce algorithms; each leaves the sum of all W workers' n elements on every worker:",
        text.rows(algorithms),
    ]


COMMAND = Command("explain", run, ExplainFlags, words="[NAME]", details=_names)
"""`shoal explain`: what the all-reduce algorithms send, and when the stages of a pipeline compute."""
