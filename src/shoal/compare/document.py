"""The report of a comparison: verdict, table, figures, and how it was measured."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from shoal.compare.comparison import Comparison, Entry
from shoal.compare.table import HEADER, LEGEND, described, table_rows, worker_rows
from shoal.compare.verdict import THRESHOLDS, Remark
from shoal.report.document import Block, Bullets, Code, Document, Figure, Heading, Judgement, Paragraph, Table
from shoal.report.figures import Drawing

WORKER_HEADER = ("run", "rank", "compute", "move", "wait", "other", "step (ms, mean)")


def compare_document(
    comparison: Comparison,
    remarks: Sequence[Remark],
    drawings: Mapping[str, Drawing],
    command: str,
    machine: Mapping[str, str],
) -> Document:
    """The whole report."""
    first = (comparison.reference or comparison.entries[0]).config
    title = f"{first.model.name} on {first.data.name}, trained in {len(comparison.entries)} ways"
    blocks: list[Block] = [
        Paragraph(_opening(comparison)),
        Code(command, language="sh"),
        Heading("Verdict"),
        *(Judgement(r.tone, r.word, r.claim, r.numbers, r.advice) for r in remarks),
        *([Bullets(comparison.notes)] if comparison.notes else []),
        Heading("Results"),
        Table("All runs", HEADER, table_rows(comparison), frozenset(range(1, len(HEADER)))),
        Paragraph(LEGEND),
        _figure(
            "loss",
            drawings,
            "Training loss against steps and against time. Runs that do the same lie on each other in the left half; "
            "in the right half the faster one is further left.",
        ),
        _figure(
            "time",
            drawings,
            "Where the time of a step goes, for each worker. A worker that waits is not slow itself: look for the one "
            "of the same run that does not wait.",
        ),
        Table(
            "Where the time of each worker went",
            WORKER_HEADER,
            worker_rows(comparison.entries),
            frozenset({1, 2, 3, 4, 5, 6}),
        ),
        Heading("How it was measured"),
        Bullets([_kept(comparison.entries), THRESHOLDS]),
        Table(
            "The runs",
            ["run", "how", "folder"],
            [[e.name, described(e.config), f"`{e.run.folder.path}`"] for e in comparison.entries],
        ),
        *(
            [Table("The machine", ["", ""], [[key, value] for key, value in machine.items()])]
            if machine
            else []
        ),
    ]
    return Document(title, "en", blocks)


def _opening(comparison: Comparison) -> str:
    first = comparison.reference or comparison.entries[0]
    config = first.config
    return (
        f"{first.run.result['steps']} steps of {config.train.batch_size} samples with {config.optimizer.name}: every "
        "run starts from the same weights and takes the same batches; only how the work of a batch is divided differs."
    )


def _kept(entries: Sequence[Entry]) -> str:
    ranks = [rank for entry in entries for rank in entry.ranks]
    kept, steps = sum(rank.steps_kept for rank in ranks), sum(rank.steps for rank in ranks)
    every = (
        "every step"
        if kept == steps
        else f"{kept:,} of {steps:,} steps and taken for all (`--trace` keeps all)"
    )
    return (
        "A worker waits in a call until the last worker has come to it, and moves for the rest of the call. The two "
        f"were told apart on {every}. The first two steps are left out: libraries are still being loaded."
    )


def _figure(name: str, drawings: Mapping[str, Drawing], caption: str) -> Figure:
    return Figure(PurePosixPath(f"figures/{name}.png"), drawings[name].png, caption, caption, wide=True)
