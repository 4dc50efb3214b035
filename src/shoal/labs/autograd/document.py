"""The report of the lab: principle, code, set-up, results, analysis, from measurements and words."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from shoal.autograd import TapeEntry
from shoal.labs.analysis import analysis
from shoal.labs.autograd import course
from shoal.labs.autograd.caching import FEATURES, SAMPLES, Tapes, recurring
from shoal.labs.autograd.chains import RIVALS, from_the_left
from shoal.labs.autograd.experiment import Measurements
from shoal.labs.autograd.findings import GROUPS, kib
from shoal.labs.autograd.networks import Network
from shoal.labs.autograd.plan import ENGINES, NETWORKS, Plan
from shoal.labs.pictures import Pictures
from shoal.labs.sections import folded, header_of, machine_table, number_table, opening, source
from shoal.labs.words import Words
from shoal.report.document import Block, Bullets, Code, Document, Formula, Heading, Paragraph, Table
from shoal.report.findings import Finding


def document(
    plan: Plan,
    command: str,
    machine: Mapping[str, str],
    measured: Measurements,
    findings: Sequence[Finding],
    pictures: Pictures,
    words: Words,
) -> Document:
    """The whole report."""
    blocks: list[Block] = [
        *opening(plan.quick, command, words),
        *principle(words),
        *code(words),
        *set_up(plan, machine, measured, words),
        Heading(words("results.heading")),
        *worked_example(measured, pictures, words),
        *dynamic_and_static(measured, words),
        *caching(measured, pictures, words),
        *chain(measured, pictures, words),
        *pictures.note(words),
        *analysis(GROUPS, findings, words),
    ]
    return Document(words("title"), words.lang, blocks)


def principle(words: Words) -> list[Block]:
    """What a tape is, what a graph is, and what is done to either."""
    blocks: list[Block] = [
        Heading(words("principle.heading")),
        Paragraph(words("principle.chain_rule")),
        Formula(words("principle.example_formula")),
        Paragraph(words("principle.example")),
    ]
    for part in ("dynamic", "static", "better"):
        blocks += [Heading(words(f"principle.{part}_heading"), 3), Paragraph(words(f"principle.{part}"))]
    return blocks


def code(words: Words) -> list[Block]:
    """What ran, from the source itself."""
    return [
        Heading(words("code.heading")),
        Paragraph(words("code.intro")),
        Code(source(course.simple) + "\n" + source(course.worked), words("code.worked")),
        Code(source(TapeEntry.propagate), words("code.propagate")),
        Code(source(recurring), words("code.recurring")),
        Code(source(from_the_left), words("code.chain")),
    ]


def set_up(plan: Plan, machine: Mapping[str, str], measured: Measurements, words: Words) -> list[Block]:
    """Networks, timing, machine."""
    sizes = {name: measured.networks[name].parameters for name in NETWORKS}
    return [
        Heading(words("setup.heading")),
        Bullets(
            [
                words("setup.networks", **sizes),
                words("setup.step", batch=plan.batch_size),
                words("setup.rounds", rounds=plan.rounds, contest=plan.contest_s),
                words("setup.memory"),
                words("setup.caching", samples=SAMPLES, features=FEATURES, distinct=plan.distinct),
            ]
        ),
        machine_table(machine, words),
    ]


def worked_example(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """The printed tape, the gradients, the graph, and what the compiler makes of it."""
    found = measured.course
    rows = [
        ["a", *_numbers(found.a)],
        ["b", *_numbers(found.b)],
        ["∂L/∂a", *_numbers(found.da)],
        ["∂L/∂b", *_numbers(found.db)],
    ]
    header = [words("course.value_column"), *(f"[{position}]" for position in range(len(found.a)))]
    return [
        Heading(words("course.heading"), 3),
        Paragraph(words("course.intro")),
        Code("\n".join(found.trace), words("course.trace"), "text"),
        Paragraph(words("course.reading")),
        number_table(words("course.table"), header, rows),
        pictures.figure("graph", words("course.caption"), words("course.alt")),
        Paragraph(words("course.compiled", before=found.operations_written, after=found.operations_compiled)),
        Code(found.source, words("course.source")),
    ]


def dynamic_and_static(measured: Measurements, words: Words) -> list[Block]:
    """Times, passes, memory, and what only the tape can do."""
    branch = measured.branch
    refused = [Code(folded(branch.refusal), words("branch.refusal"), "text")] if branch.refusal else []
    return [
        Heading(words("time.heading"), 3),
        Paragraph(words("time.intro")),
        number_table(words("time.table"), time_header(words), time_rows(measured, words)),
        Paragraph(words("time.compile", **{name: measured.networks[name].compile_ms for name in NETWORKS})),
        Heading(words("passes.heading"), 3),
        Paragraph(words("passes.intro")),
        passes_table(measured, words),
        Heading(words("memory.heading"), 3),
        Paragraph(words("memory.intro")),
        memory_table(measured, words),
        Heading(words("branch.heading"), 3),
        Paragraph(words("branch.intro")),
        Code(source(course.doubled_if_positive)),
        *refused,
    ]


def time_header(words: Words) -> list[str]:
    """Columns of the table of times, with units."""
    engines = [words("unit.ms", what=words(f"engine.{engine}")) for engine in ENGINES]
    return [words("time.what_column"), *engines, words("time.ratio_column")]


def time_rows(measured: Measurements, words: Words) -> list[list[str]]:
    """A training step and forward passes of every network."""
    rows: list[list[str]] = []
    for network in measured.networks.values():
        contests = {words("time.step", network=network.name): network.step}
        contests |= {
            words("time.forward", network=network.name, samples=samples): contest
            for samples, contest in network.forward.items()
        }
        rows += [
            [
                what,
                *(f"{contest.ms(engine):.3f}" for engine in ENGINES),
                f"{contest.ratio('static', 'dynamic'):.2f}",
            ]
            for what, contest in contests.items()
        ]
    return rows


def passes_table(measured: Measurements, words: Words) -> Table:
    """Operations and bytes written as the graph comes and after each pass."""
    networks = [measured.networks[name] for name in NETWORKS]
    header = [words("passes.pass_column")]
    for network in networks:
        header += [
            words("passes.operations_column", network=network.name),
            words("passes.bytes_column", network=network.name),
        ]
    rows: list[list[str]] = []
    for stages in zip(*(network.stages for network in networks), strict=True):
        row = [pass_name(stages[0].name, words)]
        for stage in stages:
            row += [f"{stage.num_operations:,}", f"{kib(stage.num_bytes):,.1f}"]
        rows.append(row)
    return number_table(words("passes.table"), header, rows)


def pass_name(name: str, words: Words) -> str:
    """A pass by its name in the report's language."""
    return words(f"pass.{name.replace(' ', '_')}")


def memory_table(measured: Measurements, words: Words) -> Table:
    """The most bytes held at once, and what the plan saves."""

    def row(what: str, number: Callable[[Network], int]) -> list[str]:
        return [what, *(f"{kib(number(measured.networks[name])):,.1f}" for name in NETWORKS)]

    def peak_of(engine: str) -> Callable[[Network], int]:
        return lambda network: network.peak[engine]

    rows = [row(words("memory.peak", engine=words(f"engine.{e}")), peak_of(e)) for e in ENGINES]
    rows += [
        row(words("memory.separate"), lambda network: network.separate_bytes),
        row(words("memory.planned"), lambda network: network.planned_bytes),
    ]
    header = [words("memory.what_column"), *(words("unit.kib", what=name) for name in NETWORKS)]
    return number_table(words("memory.table"), header, rows)


def caching(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """Sharing on the tape, where something recurs and where nothing does."""
    keys = ("what", "entries", "bytes", "plain", "sharing", "ratio")
    rows = [
        _tapes_row(words("caching.recurring", count=tapes.count), tapes)
        for tapes in measured.caching.recurring
    ]
    distinct = measured.caching.distinct
    rows.append(_tapes_row(words("caching.distinct", count=distinct.count), distinct))
    return [
        Heading(words("caching.heading"), 3),
        Paragraph(words("caching.intro")),
        number_table(words("caching.table"), header_of("caching", keys, words), rows),
        pictures.figure("caching", words("caching.caption"), words("caching.alt")),
    ]


def _tapes_row(what: str, tapes: Tapes) -> list[str]:
    return [
        what,
        f"{tapes.plain_entries:,} → {tapes.sharing_entries:,}",
        f"{kib(tapes.plain_bytes):,.1f} → {kib(tapes.sharing_bytes):,.1f}",
        f"{tapes.time.ms('plain'):.3f}",
        f"{tapes.time.ms('sharing'):.3f}",
        f"{tapes.time.ratio('sharing', 'plain'):.2f}",
    ]


def chain(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """The order of a chain of products."""
    header = [words("chain.size_column"), words("chain.products_column")]
    header += [words("unit.ms", what=words(f"rival.{rival}")) for rival in RIVALS]
    header.append(words("chain.ratio_column"))
    rows = [
        [
            str(one.size),
            f"{one.multiplications_written:,} → {one.multiplications_compiled:,}",
            *(f"{one.time.ms(rival):.3f}" for rival in RIVALS),
            f"{one.time.ratio('compiled', 'written'):.3f}",
        ]
        for one in measured.chains
    ]
    return [
        Heading(words("chain.heading"), 3),
        Paragraph(words("chain.intro")),
        Table(words("chain.table"), header, rows, frozenset(range(len(header)))),
        pictures.figure("chain", words("chain.caption"), words("chain.alt")),
    ]


def _numbers(tensor: Tensor) -> list[str]:
    return [f"{value:.4f}" for value in tensor.tolist()]
