"""The sections of the report on memory."""

from shoal.memory.techniques import TECHNIQUES
from shoal.report.document import Block, Bullets, Code, Formula, Heading, Paragraph
from shoal.training.memory.checkpointing import RecomputedBlock
from shoal_labs.optimise.memory.figures import key_of
from shoal_labs.optimise.memory.measure import MemoryMeasurements
from shoal_labs.page.page import Page, source


def principle(page: Page) -> list[Block]:
    """What a step keeps, and what takes which part of it away."""
    return [
        *page.parts("principle", ["memory"]),
        Formula(page("principle.memory_formula")),
        Paragraph(page("principle.memory_techniques")),
        Bullets([page(f"explained.{key_of(name).removeprefix('technique.')}") for name in TECHNIQUES]),
    ]


def code(page: Page) -> list[Block]:
    """The recomputation of a block, from the source itself."""
    return [Code(source(RecomputedBlock.__call__), page("code.checkpointing"))]


def set_up(measured: MemoryMeasurements, page: Page) -> list[Block]:
    """The run, and how it is measured."""
    plan = measured.plan
    sentence = page(
        "setup.memory",
        model=plan.size.model.name,
        batch=plan.size.batch,
        rounds=len(measured.plain.peaks_mib),
    )
    return [Heading(page("setup.memory_heading"), 3), Bullets([sentence])]


def results(measured: MemoryMeasurements, page: Page) -> list[Block]:
    """Memory and time of every setting."""
    front = measured.front()
    rows = [
        [
            page(key_of(each.technique)),
            f"`{each.flags}`" if each.flags else "–",
            f"{each.peak_mib:.1f}",
            f"{each.step_ms:.0f}",
            f"{each.ratio(measured.plain):.2f}",
            page("answer.yes" if each.is_exact else "answer.no"),
            page("answer.yes") if each.flags in front else "–",
        ]
        for each in measured.tried.values()
    ]
    header = page.header("memory", "technique", "flags", "peak", "step", "ratio", "exact", "front")
    return [
        *page.section("memory"),
        page.figure("memory"),
        page.table("memory", header, rows, right=frozenset({2, 3, 4})),
    ]
