"""The report of one run: its numbers, curves, where the time went, settings and environment."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from shoal.compare.comparison import ComparedRun, Comparison
from shoal.compare.document import WORKER_HEADER, figure_of, waiting_and_moving
from shoal.compare.figures import loss_figure, time_figure
from shoal.compare.table import described, worker_rows
from shoal.config.metrics import in_words
from shoal.config.write import to_toml
from shoal.events.file import read_events
from shoal.report.canvas import Drawing
from shoal.report.document import Block, Bullets, Code, Document, Heading, Paragraph, Table
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.markdown import to_markdown
from shoal.report.tables import to_csv

VALIDATION_HEADER = ("epoch", "step", "loss", "accuracy")
BEST = " (best)"


def write_run_report(folder: Path, run: Comparison) -> None:
    """Write figures, tables, and the document as Markdown and as a page, which appears last."""
    (entry,) = run.entries
    drawings = {"loss": loss_figure(run), "time": time_figure(run)}
    document = _document(entry, drawings)
    curve = entry.run.curve
    steps = [
        [*row] for row in zip(curve.steps.tolist(), curve.seconds.tolist(), curve.loss.tolist(), strict=True)
    ]
    write_files(
        folder,
        {
            **{PurePosixPath(f"figures/{name}.png"): drawing.png for name, drawing in drawings.items()},
            **{PurePosixPath(f"figures/{name}.pdf"): drawing.pdf for name, drawing in drawings.items()},
            PurePosixPath("tables/steps.csv"): to_csv(("step", "seconds", "loss"), steps),
            PurePosixPath("tables/workers.csv"): to_csv(WORKER_HEADER, worker_rows(run.entries)),
            PurePosixPath("report.md"): to_markdown(document),
            PurePosixPath("report.html"): to_html(document),
        },
    )


def numbers_of(entry: ComparedRun) -> dict[str, str]:
    """The numbers of a run, each with its unit; those that it does not have are left out."""
    result = entry.run.result
    rows = {
        "test accuracy": _percent(result["test_accuracy"]),
        "test loss": _number(result["test_loss"]),
        **_metrics("test", result.get("test_metrics")),
        "validation accuracy": _percent(result.get("validation_accuracy")),
        "validation loss": _number(result.get("validation_loss")),
        **_metrics("validation", result.get("validation_metrics")),
        "best epoch": _best(result),
        "stopped early": f"after epoch {result['epochs']}" if result.get("stopped_early") else None,
        "training loss, mean of the last epoch": _number(result.get("final_loss")),
        "steps": f"{result['steps']:,}",
        "training time": f"{result['seconds']:.2f} s",
        "samples per second, in the median step": f"{entry.samples_per_s:,.0f}",
        "sent by a worker": f"{result['bytes_sent'] / 1e6:.1f} MB" if entry.workers > 1 else None,
        "weights, sha256": result["weights_sha256"],
    }
    return {name: value for name, value in rows.items() if value is not None}


def _document(entry: ComparedRun, drawings: Mapping[str, Drawing]) -> Document:
    config, path = entry.config, entry.run.folder.path
    delay = 100 * (entry.not_scheduled or 0.0)
    busy = f"The machine was busy: a thread was ready but not scheduled for {delay:.0f} % of the time."
    blocks: list[Block] = [
        Paragraph(f"{described(config)}. The same run again:"),
        Code(f"shoal train {shlex.quote(str(entry.run.folder.config))} --name again", language="sh"),
        Heading("Results"),
        Table("Numbers of the run", ["", ""], [[*row] for row in numbers_of(entry).items()]),
        figure_of("loss", drawings["loss"], "Training loss against steps and against time."),
        *_validations(entry),
        Heading("Where the time went"),
        *([Paragraph(busy)] if entry.was_delayed else []),
        figure_of("time", drawings["time"]),
        Table("Each worker", WORKER_HEADER, worker_rows([entry]), frozenset(range(1, 7))),
        Bullets([waiting_and_moving([entry])]),
        Heading("Settings"),
        Code(to_toml(config), language="toml"),
        Heading("Environment"),
        Table("Each start of the run", ["", ""], _starts(entry)),
    ]
    return Document(f"{config.model.name} on {config.data.name}: {path.name}", "en", blocks)


def _validations(entry: ComparedRun) -> list[Block]:
    """The table of all validations, with a column for each metric."""
    found = entry.run.validations
    if not found:
        return []
    best = (entry.run.result.get("best") or {}).get("epoch")
    names = list(dict.fromkeys(name for each in found for name in each.get("metrics") or {}))
    rows = [
        [
            f"{each['epoch']}{BEST * (each['epoch'] == best)}",
            str(each["step"]),
            _number(each["loss"]) or "",
            _percent(each["accuracy"]) or "–",
            *(
                in_words(name, each["metrics"][name]) if name in (each.get("metrics") or {}) else "–"
                for name in names
            ),
        ]
        for each in found
    ]
    header = (*VALIDATION_HEADER, *names)
    return [Table("Validation", header, rows, frozenset(range(len(header))))]


def _metrics(split: str, values: Mapping[str, float] | None) -> dict[str, str]:
    return {f"{split} {name}": in_words(name, value) for name, value in (values or {}).items()}


def _best(result: Mapping[str, Any]) -> str | None:
    best = result.get("best")
    if best is None:
        return None
    value = in_words(best["metric"], best["value"])
    return f"{best['epoch']} of {result['epochs']}, validation {best['metric']} {value}"


def _starts(entry: ComparedRun) -> Sequence[list[str]]:
    """When, where and with what the run was started; a resumed run was started several times."""
    rows: list[list[str]] = []
    for record in read_events(entry.run.folder.events()):
        if record["event"] == "start":
            when = datetime.fromtimestamp(record["time_ns"] / 1e9)
            rows.append([f"{when:%Y-%m-%d %H:%M:%S}, from step {record['step']}", _environment(record)])
    return rows


def _environment(record: Mapping[str, Any]) -> str:
    threads = record.get("threads", "?")
    return (
        f"{record.get('host', 'unknown host')}, {record.get('device', '?')}, {threads} threads in each of "
        f"{record.get('workers', 1)} workers, shoal {record.get('version', '?')}, torch {record.get('torch', '?')}"
    )


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.2f} %"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"
