"""The report of one run: its numbers, curves, where the time went, settings and environment."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from shoal.compare.comparison import ComparedRun, Comparison
from shoal.compare.comparison_report import figure_of, waiting_and_moving, workers_table, write_document
from shoal.compare.one_run import findings
from shoal.compare.remark import percent
from shoal.compare.run_figures import captions, time_figure, training_figure
from shoal.compare.table import described
from shoal.config.metrics import in_words
from shoal.config.write import changed, literal, to_toml
from shoal.errors import ConfigError
from shoal.events.file import read_events
from shoal.report.canvas import Drawing
from shoal.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Figure,
    Folded,
    Heading,
    Judgement,
    Link,
    Links,
    Paragraph,
    Table,
)
from shoal.report.findings import of_samples
from shoal.report.index import link_to_owner
from shoal.report.plain_tables import to_csv
from shoal.report.svg import for_page
from shoal.report.timeline import read_timeline
from shoal.report.timeline_svg import drawings_of
from shoal.report.timeline_text import kept_sentences, path_sentence, step_title
from shoal.words import Words

VALIDATION_COLUMNS = ("epoch", "step", "loss", "accuracy")


def write_run_report(folder: Path, run: Comparison, words: Words) -> None:
    """Write figures, tables, and the document as Markdown and as a page, which appears last."""
    (entry,) = run.entries
    if entry.is_profile:
        _write_profile(folder, run, words)
        return
    drawings = {"loss": training_figure(entry.run, words), "time": time_figure(run, words)}
    owners = list(link_to_owner(folder, entry.run.folder.path, words.lang))
    blocks, svgs = timeline_blocks(entry.run.folder.path, words)
    document = _document(run, drawings, blocks, owners, words)
    curve = entry.run.curve
    steps = [
        [*row] for row in zip(curve.steps.tolist(), curve.seconds.tolist(), curve.loss.tolist(), strict=True)
    ]
    tables = {"steps": to_csv(("step", "seconds", "loss"), steps)}
    write_document(folder, document, drawings, tables, run, svgs)


def _write_profile(folder: Path, run: Comparison, words: Words) -> None:
    """The page of a user's own program: of its training only the times are known."""
    (entry,) = run.entries
    blocks, svgs = timeline_blocks(entry.run.folder.path, words)
    drawings = {"time": time_figure(run, words)}
    numbers, found = numbers_of(entry, words), findings(run, words)
    program = str(entry.run.result["profile"])
    header = [words(f"column.{name}") for name in ("rank", "step_ms")]
    header += [words(f"kind.{kind}") for kind in entry.ranks[0].with_data]
    rows = [
        [str(rank.rank), f"{1e3 * rank.train_s / rank.steps:.2f}"]
        + [f"{100 * part:.1f} %" for part in rank.with_data.values()]
        for rank in entry.ranks
    ]
    shown: list[Block] = [
        Paragraph(words("run.profile_how", program=f"`{program}`", workers=entry.workers)),
        *([Heading(words("section.findings"))] if found else []),
        *(Judgement(each.tone, each.word, each.claim, each.numbers, each.advice) for each in found),
        Heading(words("section.time")),
        figure_of("time", drawings["time"], captions(run, words)["time"]),
        *blocks,
        Table(words("table.workers"), header, rows, frozenset(range(len(header)))),
        Bullets([waiting_and_moving([entry], words)]),
        Table(words("table.numbers"), ["", ""], [[*row] for row in numbers.items()]),
        Folded(words("section.environment"), [Table(words("table.starts"), ["", ""], _starts(entry, words))]),
    ]
    document = Document(words("run.profile_title", program=program), words.lang, shown)
    write_document(folder, document, drawings, {}, run, svgs)


def timeline_blocks(path: Path, words: Words) -> tuple[list[Block], dict[str, str]]:
    """The timeline of a run as a figure, and its file; nothing if no step kept its spans, as in an older version."""
    try:
        timeline = read_timeline(path)
    except ConfigError:
        return [], {}
    wide, narrow = drawings_of(timeline.steps, words)
    caption = words("timeline.caption" if len(timeline.steps) > 1 else "timeline.one_caption")
    if len(timeline.median.rows) > 1:
        caption = words("join.sentences", first=caption, last=words("timeline.path_caption"))
    figure = Figure(PurePosixPath("figures/timeline.svg"), for_page(wide), caption, caption, for_page(narrow))
    paths = [
        words("timeline.of_step", title=step_title(name, step, words), path=path_sentence(step, words))
        for name, step in timeline.steps.items()
    ]
    return [figure, Bullets([*paths, *kept_sentences(timeline, words), *timeline.problems])], {
        "timeline": wide
    }


def numbers_of(entry: ComparedRun, words: Words) -> dict[str, str]:
    """The numbers of a run, each with its unit; those that it does not have are left out."""
    result, sent = entry.run.result, entry.sent_bytes
    if entry.is_profile:
        rows = {"steps": f"{result['steps']:,}", "seconds": f"{result['seconds']:.2f} s"}
        rows |= {"step_ms": f"{1e3 * entry.sample_s.value:.2f} ms"}
        rows |= {"bytes_sent": f"{sent / 1e6:.1f} MB"} if sent else {}
        return {words(f"run.{name}"): value for name, value in rows.items()}
    rows = {
        "test_accuracy": _percent(result["test_accuracy"], result.get("test_samples")),
        "test_loss": _number(result["test_loss"]),
        "validation_accuracy": _percent(result.get("validation_accuracy")),
        "validation_loss": _number(result.get("validation_loss")),
        "best": _best(result, words),
        "stopped_early": words("run.after_epoch", epoch=result["epochs"])
        if result.get("stopped_early")
        else None,
        "final_loss": _number(result.get("final_loss")),
        "steps": f"{result['steps']:,}",
        "seconds": f"{result['seconds']:.2f} s",
        "samples_per_s": f"{entry.samples_per_s:,.0f}",
        "bytes_sent": f"{sent / 1e6:.1f} MB" if entry.workers > 1 and sent is not None else None,
        "bytes_mapped": f"{entry.mapped_bytes / 1e6:.1f} MB" if entry.mapped_bytes else None,
        "sha256": result["weights_sha256"],
        "unchecked": None if entry.is_checked else words("run.unchecked_why"),
    }
    return {
        **{words(f"run.{name}"): value for name, value in rows.items() if value is not None},
        **_metrics("test", result.get("test_metrics"), words),
        **_metrics("validation", result.get("validation_metrics"), words),
    }


def _document(
    run: Comparison,
    drawings: Mapping[str, Drawing],
    timeline: Sequence[Block],
    owners: Sequence[Link],
    words: Words,
) -> Document:
    """What a reader asks first; the tables behind it are folded."""
    (entry,) = run.entries
    caption = captions(run, words)
    config, path = entry.config, entry.run.folder.path
    numbers, found = numbers_of(entry, words), findings(run, words)
    busy = words("run.busy", percent=percent(entry.not_scheduled or 0.0))
    blocks: list[Block] = [
        *([Links(owners)] if owners else []),
        Paragraph(words("run.again", how=described(config, words))),
        Code(f"shoal train {shlex.quote(str(entry.run.folder.config))} --name again", language="sh"),
        *([Heading(words("section.findings"))] if found else []),
        *(Judgement(each.tone, each.word, each.claim, each.numbers, each.advice) for each in found),
        Heading(words("section.results")),
        Table(words("table.numbers"), ["", ""], [[*row] for row in numbers.items()]),
        figure_of("loss", drawings["loss"], caption["loss"]),
        Heading(words("section.time")),
        *([Paragraph(busy)] if entry.was_delayed and not found else []),
        figure_of("time", drawings["time"], caption["time"]),
        *timeline,
        Heading(words("section.changed")),
        _changed(entry, words),
        *_validations(entry, words),
        Folded(
            words("table.each_worker"),
            [workers_table("workers", [entry], words), Bullets([waiting_and_moving([entry], words)])],
        ),
        Folded(words("section.settings"), [Code(to_toml(config), language="toml")]),
        Folded(words("section.environment"), [Table(words("table.starts"), ["", ""], _starts(entry, words))]),
    ]
    title = words("run.title", model=config.model.name, data=config.data.name, name=path.name)
    main = "test_loss" if entry.accuracy is None else "test_accuracy"
    result = f"{words(f'run.{main}')} {numbers.get(words(f'run.{main}'), '–')}"
    facts = {key: entry.run.result[key] for key in ("steps", "seconds")}
    summary = words("run.summary", result=result, strategy=config.strategy, **facts)
    return Document(title, words.lang, blocks, summary)


def _changed(entry: ComparedRun, words: Words) -> Table:
    """The settings that differ from the defaults; where the run's files are does not matter."""
    rows = [
        [f"`{path}`", *("–" if value is None else f"`{literal(value)}`" for value in values)]
        for path, values in changed(entry.config).items()
        if not path.startswith("output.")
    ]
    header = [words(f"column.{column}") for column in ("setting", "value", "default")]
    return Table(words("table.changed"), header, rows)


def _validations(entry: ComparedRun, words: Words) -> list[Block]:
    """The table of all validations, folded, with a column for each metric."""
    found = entry.run.validations
    if not found:
        return []
    best = (entry.run.result.get("best") or {}).get("epoch")
    names = list(dict.fromkeys(name for each in found for name in each.get("metrics") or {}))
    rows = [
        [
            words("run.best_epoch", epoch=each["epoch"]) if each["epoch"] == best else str(each["epoch"]),
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
    header = [*(words(f"column.{column}") for column in VALIDATION_COLUMNS), *names]
    title = words("table.validation")
    return [Folded(title, [Table(title, header, rows, frozenset(range(len(header))))])]


def _metrics(split: str, values: Mapping[str, float] | None, words: Words) -> dict[str, str]:
    return {
        words(f"run.{split}_metric", name=name): in_words(name, value)
        for name, value in (values or {}).items()
    }


def _best(result: Mapping[str, Any], words: Words) -> str | None:
    best = result.get("best")
    if best is None:
        return None
    value = in_words(best["metric"], best["value"])
    return words(
        "run.best_is", epoch=best["epoch"], epochs=result["epochs"], metric=best["metric"], value=value
    )


def _starts(entry: ComparedRun, words: Words) -> Sequence[list[str]]:
    """When, where and with what the run was started; a resumed run was started several times."""
    rows: list[list[str]] = []
    for record in read_events(entry.run.folder.events(), "start"):
        when = f"{datetime.fromtimestamp(record['time_ns'] / 1e9):%Y-%m-%d %H:%M:%S}"
        rows.append([words("run.start", when=when, step=record["step"]), _environment(record, words)])
    return rows


def _environment(record: Mapping[str, Any], words: Words) -> str:
    return words(
        "run.environment",
        host=record.get("host", words("run.unknown_host")),
        device=record.get("device", "?"),
        threads=record.get("threads", "?"),
        workers=record.get("workers", 1),
        version=record.get("version", "?"),
        torch=record.get("torch", "?"),
    )


def _percent(value: float | None, num_samples: int | None = None) -> str | None:
    """An accuracy; with its uncertainty, if the number of samples is known."""
    if value is None or not num_samples:
        return None if value is None else f"{100 * value:.2f} %"
    return f"{of_samples(value, num_samples).scaled(100):.2f} %"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"
