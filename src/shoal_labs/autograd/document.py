"""The sections of the report that are particular to the lab."""

from collections.abc import Callable

from torch import Tensor

from shoal.autograd import TapeEntry
from shoal.report.document import Block, Bullets, Code, Formula, Paragraph, Table
from shoal.report.findings import inside_run
from shoal_labs.autograd import course
from shoal_labs.autograd.caching import FEATURES, SAMPLES, Tapes, recurring
from shoal_labs.autograd.chains import RIVALS, from_the_left
from shoal_labs.autograd.experiment import AutogradMeasurements
from shoal_labs.autograd.findings import kib
from shoal_labs.autograd.networks import Network
from shoal_labs.autograd.plan import ENGINES, NETWORKS
from shoal_labs.page.page import Page, folded, source


def principle(page: Page) -> list[Block]:
    """What a tape is, what a graph is, and how each can be improved."""
    return [
        Paragraph(page("principle.chain_rule")),
        Formula(page("principle.example_formula")),
        Paragraph(page("principle.example")),
        *page.parts("principle", ("dynamic", "static", "better")),
    ]


def code(page: Page) -> list[Block]:
    """What ran, from the source itself."""
    return [
        Code(source(course.simple) + "\n" + source(course.worked), page("code.worked")),
        Code(source(TapeEntry.propagate), page("code.propagate")),
        Code(source(recurring), page("code.recurring")),
        Code(source(from_the_left), page("code.chain")),
    ]


def set_up(measured: AutogradMeasurements, page: Page) -> list[Block]:
    """Networks and timing."""
    plan = measured.plan
    sentences = [
        page("setup.networks", **{name: measured.networks[name].parameters for name in NETWORKS}),
        page("setup.step", batch=plan.batch_size),
        page("setup.rounds", rounds=plan.rounds, contest=plan.contest_s),
        page("setup.memory"),
        page("setup.caching", samples=SAMPLES, features=FEATURES, distinct=plan.distinct),
    ]
    return [Bullets(sentences)]


def results(measured: AutogradMeasurements, page: Page) -> list[Block]:
    """All results, in the order of the questions."""
    return [
        *worked_example(measured, page),
        *dynamic_and_static(measured, page),
        *caching(measured, page),
        *chain(measured, page),
    ]


def worked_example(measured: AutogradMeasurements, page: Page) -> list[Block]:
    """The printed tape, the gradients, the graph, and what the compiler makes of it."""
    found = measured.course
    values = {"a": found.a, "b": found.b, "∂L/∂a": found.da, "∂L/∂b": found.db}
    rows = [[name, *_numbers(value)] for name, value in values.items()]
    header = [*page.header("course", "value"), *(f"[{position}]" for position in range(len(found.a)))]
    return [
        *page.section("course"),
        Code("\n".join(found.trace), page("course.trace"), "text"),
        Paragraph(page("course.reading")),
        page.table("course", header, rows),
        page.figure("graph", "course"),
        Paragraph(page("course.compiled", before=found.operations_written, after=found.operations_compiled)),
        Code(found.source, page("course.source")),
    ]


def dynamic_and_static(measured: AutogradMeasurements, page: Page) -> list[Block]:
    """Times, passes, memory, and what only the tape can do."""
    refusal = measured.branch.refusal
    return [
        *page.section("time"),
        time_table(measured, page),
        Paragraph(
            page(
                "time.compile",
                **{name: inside_run(measured.networks[name].cold_ms) for name in NETWORKS},
                **{f"{name}_again": measured.networks[name].again_ms for name in NETWORKS},
            )
        ),
        *page.section("passes"),
        passes_table(measured, page),
        *page.section("memory"),
        memory_table(measured, page),
        *page.section("branch"),
        Code(source(course.doubled_if_positive)),
        *([Code(folded(refusal), page("branch.refusal"), "text")] if refusal else []),
    ]


def time_table(measured: AutogradMeasurements, page: Page) -> Table:
    """A training step and forward passes of every network."""
    timed = [
        (what, contest)
        for network in measured.networks.values()
        for what, contest in (
            (page("time.step", network=network.name), network.step),
            *(
                (page("time.forward", network=network.name, samples=samples), contest)
                for samples, contest in network.forward.items()
            ),
        )
    ]
    rows = [
        [
            what,
            *(f"{contest.ms(engine):.3f}" for engine in ENGINES),
            f"{contest.ratio('static', 'dynamic'):.2f}",
        ]
        for what, contest in timed
    ]
    engines = [page("unit.ms", what=page(f"engine.{engine}")) for engine in ENGINES]
    return page.table("time", [*page.header("time", "what"), *engines, *page.header("time", "ratio")], rows)


def passes_table(measured: AutogradMeasurements, page: Page) -> Table:
    """Operations and bytes written, before the first pass and after each."""
    header = page.header("passes", "pass")
    for name in NETWORKS:
        header += page.header("passes", "operations", "bytes", network=name)
    rows: list[list[str]] = []
    for stages in zip(*(measured.networks[name].stages for name in NETWORKS), strict=True):
        row = [pass_name(stages[0].name, page)]
        for stage in stages:
            row += [f"{stage.num_operations:,}", f"{kib(stage.num_bytes):,.1f}"]
        rows.append(row)
    return page.table("passes", header, rows)


def pass_name(name: str, words: Callable[[str], str]) -> str:
    """The name of a pass in the report's language."""
    return words(f"pass.{name.replace(' ', '_')}")


def memory_table(measured: AutogradMeasurements, page: Page) -> Table:
    """The most bytes held at once, and what the memory plan saves."""

    def row(what: str, number: Callable[[Network], int]) -> list[str]:
        return [what, *(f"{kib(number(measured.networks[name])):,.1f}" for name in NETWORKS)]

    def peak_of(engine: str) -> Callable[[Network], int]:
        return lambda network: network.peak[engine]

    rows = [
        *(row(page("memory.peak", engine=page(f"engine.{name}")), peak_of(name)) for name in ENGINES),
        row(page("memory.separate"), lambda network: network.separate_bytes),
        row(page("memory.planned"), lambda network: network.planned_bytes),
    ]
    header = [*page.header("memory", "what"), *(page("unit.kib", what=name) for name in NETWORKS)]
    return page.table("memory", header, rows)


def caching(measured: AutogradMeasurements, page: Page) -> list[Block]:
    """Sharing on the tape, where something recurs and where nothing does."""
    distinct = measured.caching.distinct
    rows = [
        *(
            _tapes_row(page("caching.recurring", count=tapes.count), tapes)
            for tapes in measured.caching.recurring
        ),
        _tapes_row(page("caching.distinct", count=distinct.count), distinct),
    ]
    header = page.header("caching", "what", "entries", "bytes", "plain", "sharing", "ratio")
    return [*page.section("caching"), page.table("caching", header, rows), page.figure("caching")]


def _tapes_row(what: str, tapes: Tapes) -> list[str]:
    return [
        what,
        f"{tapes.plain_entries:,} → {tapes.sharing_entries:,}",
        f"{kib(tapes.plain_bytes):,.1f} → {kib(tapes.sharing_bytes):,.1f}",
        f"{tapes.time.ms('plain'):.3f}",
        f"{tapes.time.ms('sharing'):.3f}",
        f"{tapes.time.ratio('sharing', 'plain'):.2f}",
    ]


def chain(measured: AutogradMeasurements, page: Page) -> list[Block]:
    """The order of a chain of products."""
    rivals = [page("unit.ms", what=page(f"rival.{rival}")) for rival in RIVALS]
    header = [*page.header("chain", "size", "products"), *rivals, *page.header("chain", "ratio")]
    rows = [
        [
            str(one.size),
            f"{one.multiplications_written:,} → {one.multiplications_compiled:,}",
            *(f"{one.time.ms(rival):.3f}" for rival in RIVALS),
            f"{one.time.ratio('compiled', 'written'):.3f}",
        ]
        for one in measured.chains
    ]
    table = page.table("chain", header, rows, right=frozenset(range(len(header))))
    return [*page.section("chain"), table, page.figure("chain")]


def _numbers(tensor: Tensor) -> list[str]:
    return [f"{value:.4f}" for value in tensor.tolist()]
