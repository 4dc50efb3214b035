"""`shoal explain`: a strategy, codec, robust rule, pipeline schedule or all-reduce algorithm on one page.

The words are in `explain/texts.toml`. Pictures of codecs, rules, schedules and algorithms are made by the code that a
run executes, and all numbers by the formulas that runs are counted with.
"""

import inspect
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.cli.text import write_file
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast, AtMost
from shoal.config.sections.values import is_own
from shoal.errors import ConfigError
from shoal.printable import counted

if TYPE_CHECKING:
    from shoal.config.schema import RunConfig
    from shoal.explain.names import Row
    from shoal.explain.picture import Picture
    from shoal.strategies.pipeline.schedule import ActionKind

WORKERS, STAGES, MICROBATCHES = 4, 4, 8
PARAMS = 100_000_000
LETTERS = {
    "Ψ": "Ψ parameters",
    "N": "N workers that divide them",
    "U": "U a unit of zero",
    "n": "n = 4 bytes for each parameter",
}


@dataclass(frozen=True)
class ExplainFlags(Flags):
    """How large, and where to draw it."""

    workers: Annotated[int, AtLeast(1), AtMost(256)] | None = None
    """Number of workers (default: 4, or as many as the strategy needs)."""
    params: Annotated[float, AtLeast(1), AtMost(1e15)] | None = None
    """Of strategies, rules and algorithms: number of parameters, such as 7e9 (default: 1e8)."""
    stages: Annotated[int, AtLeast(1), AtMost(32)] | None = None
    """Of a schedule: number of stages (default: 4)."""
    microbatches: Annotated[int, AtLeast(1), AtMost(64)] | None = None
    """Of a schedule: number of micro-batches (default: 8)."""
    weights_once: bool = False
    """Of a schedule: compute all weight gradients at once, at the end of the step."""
    svg: Path | None = None
    """Draw it into this file, too; - writes the drawing, and nothing else, to standard output."""


TAKES = {"schedule": ("stages", "microbatches", "weights_once"), "codec": ("workers",)}
"""The flags about size that a kind takes; the others take --workers and --params."""


def run(given: Given[ExplainFlags]) -> int:
    """Explain a strategy, a codec, a robust rule, a pipeline schedule or an all-reduce algorithm.

    Shows what it is, when to use it, a picture, its cost in bytes and memory, the file to read and a command to try.
    Without NAME: all names.

    Start with:  shoal explain ddp
    """
    from shoal.explain.names import KINDS, row_of

    flags = given.flags
    if not given.words:
        if flags != ExplainFlags():
            raise ConfigError("NAME is required", "`shoal explain` lists the names.")
        names = text.rows({kind.title: ", ".join(kind.names) for kind in KINDS.values()})
        text.show(f"Names of `shoal explain NAME`, such as `shoal explain ddp`:\n\n{names}")
        return 0
    name = given.words[0]
    own = is_own(name) and name.partition(":")[0] not in ("by", "compressed", "robust")
    row = None if own else row_of(name)
    kind = "schedule" if row is None else row.kind
    taken = TAKES.get(kind, ("workers", "params"))
    for flag in ("workers", "params", "stages", "microbatches", "weights_once"):
        if flag not in taken and getattr(flags, flag) not in (None, False):
            hint = "Give --workers." if "workers" in taken else "Give --stages and --microbatches."
            raise ConfigError(f"--{flag.replace('_', '-')} has no effect on the {kind} {name}", hint)
    if row is None:
        return _show(_schedule(name, flags), flags)
    return _show({"strategy": _strategy, "codec": _codec, "rule": _rule}.get(kind, _drawn)(row, flags), flags)


@dataclass(frozen=True)
class Page:
    """What is shown, in parts: the cost needs torch, and comes after what is shown at once."""

    words: list[str]
    cost: Callable[[], list[str]]
    drawing: Callable[[], str]


def _show(page: Page, flags: ExplainFlags) -> int:
    if str(flags.svg) == "-":
        text.show(page.drawing().rstrip("\n"))
        return 0
    text.show("\n".join(page.words))
    if cost := page.cost():
        text.show("\n".join(cost))
    if flags.svg is not None:
        write_file(flags.svg, page.drawing())
        text.show(f"wrote {flags.svg}")
    return 0


def _head(row: "Row", what: str) -> list[str]:
    """The five lines."""
    from shoal.explain.names import KINDS

    lines = {
        "what it is": what,
        "one step": row.step,
        "use it when": row.use,
        "not when": row.no_use,
        "result": row.result,
    }
    return [f"{text.bold(row.name)} ({KINDS[row.kind].title})", "", text.rows(lines), ""]


def _foot(row: "Row", files: list[str]) -> list[str]:
    """The files to read, and the command to try."""
    example = (
        Path(str(resources.files("shoal"))).parent.parent / "examples" / "in_100_lines" / f"{row.name}.py"
    )
    shown = [*files, *([os.path.relpath(example)] if example.exists() else [])]
    return ["", text.rows({"read": ", ".join(shown)}), f"  {text.bold('try')}   {row.to_try}"]


def _file(path: str, line: int = 0) -> str:
    """A file, as seen from the current folder if that is shorter."""
    return min(os.path.relpath(path), path, key=len) + (f":{line}" if line else "")


def _place(thing: object) -> str:
    """Where a function or a class is defined."""
    function = inspect.unwrap(thing) if callable(thing) else type(thing)
    return _file(str(inspect.getsourcefile(function)), inspect.getsourcelines(function)[1])


def _strategy(row: "Row", flags: ExplainFlags) -> Page:
    from shoal.config.read import read
    from shoal.explain.picture import holdings, step_in_time

    workers, params = flags.workers or row.workers, int(flags.params or PARAMS)
    configs = [read(None, [*case.flags.split(), "--workers", str(workers)]) for case in row.cases]
    meshes = [config.axes for config in configs]
    pictures = [holdings(row, meshes, workers), step_in_time(row, meshes[0].get("pipeline", 1))]

    def cost() -> list[str]:
        from shoal.explain.cost import ACTIVATIONS, BYTES, sent_bytes

        lines = [f"For {params:,} parameters in float32 with Adam, {counted(workers, 'worker')}:", ""]
        facts: dict[str, str] = {}
        for case, config in zip(row.cases, configs, strict=True):
            sent = case.note or _size(sent_bytes(case, config.axes, params))
            times = Counter(each.replace("_", "-") for each in case.sends)
            listed = " + ".join(f"{f'{count} × ' * (count > 1)}{each}" for each, count in times.items())
            what = f" in a step: {listed}" if listed else ""
            mapped = f"; on one machine, mapped memory replaces {case.mapped}" if case.mapped else ""
            facts[f"{case.name} sends".strip()] = f"{sent}{what}{mapped}"
            facts[f"{case.name} memory".strip()] = _memory(config, params)
        letters = {**LETTERS, "a": f"a = {_size(BYTES * ACTIVATIONS)} of activations"}
        formulas = " ".join(each for case in row.cases for each in case.sends) + " ".join(facts.values())
        used = [said for letter, said in letters.items() if re.search(rf"(?<!in )\b\d*{letter}\b", formulas)]
        legend = [text.wrapped(f"({', '.join(used)})", 2)] if used else []
        return [*lines, text.rows(facts), *legend, *_foot(row, files)]

    files = [_file(str(resources.files("shoal") / each)) for each in row.read]
    return _with_pictures(row, pictures, cost)


def _with_pictures(row: "Row", pictures: "list[Picture]", cost: Callable[[], list[str]]) -> Page:
    from shoal.explain.picture import as_lines, as_svg

    drawn = [line for picture in pictures for line in [*as_lines(picture, text.on_colour), ""]]
    return Page([*_head(row, row.what), *drawn], cost, lambda: as_svg(row.name, pictures))


def _memory(config: "RunConfig", params: int) -> str:
    """The memory of one worker by formula, without what depends on the batch and on the model's layers."""
    from shoal.memory.formulas import components, total
    from shoal.strategies.buckets.plan import MIB
    from shoal.strategies.local.settings import LocalConfig
    from shoal.strategies.memory import Sizes
    from shoal.strategies.zero.settings import ZeroConfig

    axes, sync = config.axes, config.sync
    assert sync is not None
    part = -(-params // (axes.get("pipeline", 1) * axes.get("tensor", 1)))
    zero = sync if isinstance(sync, ZeroConfig) else ZeroConfig()
    unit = min(int(zero.unit_mib * MIB), 4 * part)
    sizes = Sizes(
        num_params=part,
        workers=axes.get("data", 1),
        weights=4 * part,
        state=8 * part,
        unit=unit,
        num_units=-(-4 * part // unit),
        stage=zero.stage,
        averages_state=isinstance(sync, LocalConfig) and sync.averages_moments,
    )
    try:
        found = components(sync.name, sizes)
    except ConfigError as error:
        return error.message
    listed = ", ".join(f"{each.name} {each.formula}" for each in found if each.num_bytes)
    own = f", Ψ = {part:,} of this worker's part" if part != params else ""
    return f"{_size(total(found))} and activations: {listed}{own}"


def _codec(row: "Row", flags: ExplainFlags) -> Page:
    from shoal.codecs.build import build_codec
    from shoal.config.sections.compression import CODEC_ROWS, CompressedConfig
    from shoal.explain.examples import codec_at_work

    workers = flags.workers or row.workers
    picture = codec_at_work(row.name)
    codec = build_codec(CompressedConfig(codec=row.name).encoding_of("weight"))

    def cost() -> list[str]:
        import torch

        from shoal.config.read import read
        from shoal.explain.cost import BYTES, EXAMPLE, fraction, of_codec
        from shoal.memory.formulas import exchange_state

        operation, num_bytes, sent = of_codec(row.name, workers)
        shape, plain = EXAMPLE.shape, BYTES * EXAMPLE.numel
        config = read(None, f"--strategy ddp --workers {workers} --exchange compressed:{row.name}".split())
        state = exchange_state(config, {"weight": torch.empty(shape, device="meta")})
        settings = ", ".join(
            f"--exchange.{key} {value}" for key, value in CODEC_ROWS[row.name].settings.items()
        )
        facts = {
            "payload": f"{_size(num_bytes)} instead of {_size(plain)}",
            "sends": f"{_size(sent)} by {operation.replace('_', '-')}, instead of "
            f"{_size(plain * fraction('all_reduce', workers))}",
            "memory": ", ".join(
                f"{_size(each.num_bytes or 0)} {each.name} ({each.formula})" for each in state
            )
            or "nothing is kept from step to step",
            "settings": f"{settings.lower() or 'none'} (defaults)" if settings else "none",
        }
        example = (
            f"For a matrix of {shape[0]:,} × {shape[1]:,} numbers in float32, {counted(workers, 'worker')}:"
        )
        return [example, "", text.rows(facts), *_foot(row, [_place(type(codec))])]

    return _with_pictures(row, [picture], cost)


def _rule(row: "Row", flags: ExplainFlags) -> Page:
    from shoal.explain.examples import rule_at_work
    from shoal.strategies.exchange import rules

    workers, params = flags.workers or row.workers, int(flags.params or PARAMS)
    picture = rule_at_work(row.name)

    def cost() -> list[str]:
        from shoal.explain.cost import fraction, of_rule

        plain = 4 * params * fraction("all_reduce", workers)
        spare = rules.SPARE[row.name]
        facts = {
            "sends": f"{_size(of_rule(params, workers))} in a step by all-gather, instead of {_size(plain)}",
            "tolerates": ", ".join(f"{bad} bad of {2 * bad + spare} workers" for bad in (1, 2, 3)),
        }
        example = f"For {params:,} parameters in float32, {counted(workers, 'worker')}:"
        return [example, "", text.rows(facts), *_foot(row, [_place(getattr(rules, row.name))])]

    return _with_pictures(row, [picture], cost)


def _drawn(row: "Row", flags: ExplainFlags) -> Page:
    """A schedule or an algorithm: both have drawings of their own."""
    if row.kind == "schedule":
        from shoal.strategies.pipeline.schedules import function_of

        page = _schedule(row.name, flags)
        what, *grid = page.words
        files = [_place(function_of(row.name))]
        return Page([*_head(row, what), *grid], lambda: _foot(row, files), page.drawing)

    from shoal.comm.algorithms import ALGORITHMS
    from shoal.explain.cost import of_algorithm
    from shoal.explain.rounds import as_svg, as_text, explain

    workers, params = flags.workers or WORKERS, int(flags.params or PARAMS)
    explanation = explain(row.name, workers)
    sent = of_algorithm(row.name, params, workers)
    shown = dict.fromkeys((_size(min(sent)), _size(max(sent))))
    cost = [
        "",
        f"For {params:,} parameters in float32 a worker sends {' to '.join(shown)}.",
        *_foot(row, [_place(ALGORITHMS[row.name])]),
    ]
    words = [*_head(row, explanation.summary), as_text(explanation)]
    return Page(words, lambda: cost, lambda: as_svg(explanation))


def _schedule(name: str, flags: ExplainFlags) -> Page:
    """A schedule: its sentence, and the grid."""
    from shoal.explain.pipeline import as_grid, explain_schedule
    from shoal.explain.timeline_svg import as_drawing

    stages, microbatches = flags.stages or STAGES, flags.microbatches or MICROBATCHES
    explanation = explain_schedule(name, stages, microbatches, flags.weights_once)
    grid = as_grid(explanation, text.page_width(), _paint_action)
    return Page([explanation.summary, grid], list, lambda: as_drawing(explanation))


def _size(num_bytes: float) -> str:
    """Bytes, with a unit that fits.

    >>> _size(4_000_000), _size(84), _size(1.5e12)
    ('4 MB', '84 bytes', '1.5 TB')
    """
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.3g} {unit}"
    return f"{num_bytes:.3g} bytes"


def _paint_action(kind: "ActionKind | None", words: str) -> str:
    """The colours of a grid: forward blue, backward yellow, weight gradients green, updates magenta, idle dim."""
    if kind is None:
        return text.dim(words)
    colours = {"F": "blue", "B": "yellow", "I": "yellow", "W": "green", "U": "magenta"}
    return text.on_colour(colours[kind.value], words)


COMMAND = Command("explain", run, ExplainFlags, words="[NAME]")
