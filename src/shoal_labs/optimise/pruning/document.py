"""The sections of the report on pruning."""

from shoal.prune.masks import keep_best
from shoal.report.document import Block, Bullets, Code, Formula, Heading, Paragraph
from shoal.report.findings import Measured, inside_run, over_seeds
from shoal_labs.optimise.pruning.measure import PruningMeasurements
from shoal_labs.optimise.pruning.plan import BATCH_SIZE
from shoal_labs.page.page import Page, source


def principle(page: Page) -> list[Block]:
    """Zeros against smaller tensors."""
    return [
        *page.parts("principle", ["pruning"]),
        Formula(page("principle.pruning_formula")),
        Paragraph(page("principle.pruning_kinds")),
    ]


def code(page: Page) -> list[Block]:
    """What chooses weights, from the source itself."""
    return [Code(source(keep_best), page("code.prune"))]


def set_up(measured: PruningMeasurements, page: Page) -> list[Block]:
    """Training, pruning, fine-tuning, timing."""
    plan, size = measured.plan, measured.plan.size
    sentences = [
        page(
            "setup.pruning",
            model=plan.model.name,
            data=plan.data.name,
            values=measured.num_values,
            epochs=page.words.counted("epoch", size.epochs),
            finetune=page.words.counted("epoch", size.finetune),
            batch=BATCH_SIZE,
            seeds=plan.seeds,
        ),
        page("setup.forward", batch=BATCH_SIZE, rounds=len(measured.forward_s), ms=_ms(measured)),
    ]
    return [Heading(page("setup.pruning_heading"), 3), Bullets(sentences)]


def _ms(measured: PruningMeasurements) -> Measured:
    return inside_run([1e3 * each for each in measured.forward_s])


def results(measured: PruningMeasurements, page: Page) -> list[Block]:
    """Accuracy, speed and size by sparsity."""
    kib = 1024
    rows = [
        [
            page(f"pruned.{kind}"),
            "0",
            f"{over_seeds(tuned).scaled(100):.2f}",
            f"{over_seeds(measured.whole).scaled(100):.2f}",
            f"{measured.num_values:,}",
            f"{measured.num_bytes / kib:.0f}",
            f"{measured.file_bytes / kib:.0f}",
            "1",
        ]
        for kind, tuned in measured.tuned.items()
    ]
    rows += [
        [
            page(f"pruned.{each.kind}"),
            f"{100 * each.sparsity:.0f}",
            f"{each.accuracy.scaled(100):.2f}",
            f"{over_seeds(each.at_once).scaled(100):.2f}",
            f"{each.num_values:,}",
            f"{each.num_bytes / kib:.0f}",
            f"{each.file_bytes / kib:.0f}",
            f"{measured.speedup(each):.2f}",
        ]
        for each in measured.pruned.values()
    ]
    header = page.header("pruning", "kind", "sparsity", "accuracy", "once", "values", "size", "file", "speed")
    return [*page.section("pruning"), page.figure("pruning"), page.table("pruning", header, rows)]
