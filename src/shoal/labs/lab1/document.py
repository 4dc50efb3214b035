"""The report of the lab: principle, code, set-up, results, analysis, from measurements and words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shoal.labs.analysis import analysis
from shoal.labs.lab1.findings import GROUPS
from shoal.labs.lab1.measure import WINDOW, Measurements, Series
from shoal.labs.lab1.plan import BATCH_SIZE, NAMES, Plan
from shoal.labs.lab1.sweep import Sweep
from shoal.labs.numbers import listed
from shoal.labs.pictures import Pictures
from shoal.labs.sections import header_of, machine_table, number_table, opening, source
from shoal.labs.words import Words
from shoal.optim import SGD, Adam
from shoal.report.document import Block, Bullets, Code, Document, Formula, Heading, Paragraph, Table
from shoal.report.findings import Finding


@dataclass(frozen=True)
class SetUp:
    """What the set-up section tells besides the plan."""

    command: str
    samples: Mapping[str, int]
    """Sizes of the training, validation and test part."""
    parameters: int
    machine: Mapping[str, str]


def document(
    plan: Plan,
    setup: SetUp,
    measured: Measurements,
    findings: Sequence[Finding],
    pictures: Pictures,
    words: Words,
) -> Document:
    """The whole report."""
    blocks: list[Block] = [
        *opening(plan.quick, setup.command, words),
        *principle(words),
        *code(words),
        *set_up(plan, setup, measured, words),
        *results(measured, pictures, words),
        *analysis(GROUPS, findings, words),
    ]
    return Document(words("title", data=plan.data.name), words.lang, blocks)


def principle(words: Words) -> list[Block]:
    """What the three rules are and why they differ."""
    blocks: list[Block] = [Heading(words("principle.heading")), Paragraph(words("principle.problem"))]
    for name in NAMES:
        blocks += [
            Heading(words(f"principle.{name}_heading"), 3),
            Paragraph(words(f"principle.{name}")),
            Formula(words(f"principle.{name}_formula")),
        ]
        if f"principle.{name}_after" in words.sentences:
            blocks.append(Paragraph(words(f"principle.{name}_after")))
    return blocks


def code(words: Words) -> list[Block]:
    """The steps that ran, from the source itself."""
    return [
        Heading(words("code.heading")),
        Paragraph(words("code.intro")),
        Code(source(SGD.readable), words("code.sgd")),
        Code(source(Adam.readable), words("code.adam")),
        Paragraph(words("code.gd")),
    ]


def set_up(plan: Plan, setup: SetUp, measured: Measurements, words: Words) -> list[Block]:
    """Data, model, hyper-parameters, machine."""
    return [
        Heading(words("setup.heading")),
        Bullets(
            [
                words("setup.data", data=plan.data.name, **setup.samples),
                words("setup.model", parameters=setup.parameters),
                words("setup.loss"),
                words("setup.choice", held_out=100 * plan.data.validation),
                words("setup.seeds", seeds=listed(plan.seeds("sgd")), gd_seeds=listed(plan.seeds("gd"))),
                words("setup.time"),
            ]
        ),
        hyper_parameters(plan, measured, words),
        machine_table(setup.machine, words),
    ]


def hyper_parameters(plan: Plan, measured: Measurements, words: Words) -> Table:
    """What each optimizer was run with."""
    rows = [
        [
            words(f"name.{name}"),
            f"{measured.sweeps[name].best.rate:g}",
            words("hyper.whole_set") if name == "gd" else str(BATCH_SIZE),
            str(plan.passes(name)),
            str(plan.sweep_passes(name)),
            words(f"hyper.{name}"),
        ]
        for name in NAMES
    ]
    keys = ("optimizer", "rate", "batch", "passes", "sweep_passes", "other")
    return Table(words("hyper.caption"), header_of("hyper", keys, words), rows, frozenset({1, 2, 3, 4}))


RESULT_COLUMNS = ("optimizer", "accuracy", "loss", "steps", "samples", "seconds", "rate")


def result_header(words: Words) -> list[str]:
    """Columns of the table of results, with units."""
    return header_of("results", RESULT_COLUMNS, words)


def result_rows(measured: Measurements, words: Words) -> list[list[str]]:
    """One row per optimizer."""
    return [_result_row(measured.series[name], words) for name in NAMES]


def _result_row(series: Series, words: Words) -> list[str]:
    return [
        words(f"name.{series.name}"),
        f"{series.results('test_accuracy').scaled(100):.2f}",
        f"{series.losses(lambda curve: len(curve.loss) - 1):.4f}",
        f"{series.runs[0].result['steps']:,}",
        f"{series.samples():,}",
        f"{series.results('seconds'):.2f}",
        f"{series.results('samples_per_s'):,.0f}",
    ]


def results(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """The sweep, the curves, the table."""
    blocks: list[Block] = [
        Heading(words("results.heading")),
        Heading(words("sweep.heading"), 3),
        Paragraph(words("sweep.intro")),
        *(sweep_table(measured.sweeps[name], words) for name in NAMES),
    ]
    notes = [note for name in NAMES for note in sweep_notes(measured.sweeps[name], words)]
    blocks += [Bullets(notes)] if notes else []
    blocks += [
        pictures.figure("sweep", words("sweep.caption"), words("sweep.alt")),
        Heading(words("results.curves"), 3),
        Paragraph(words("results.intro", window=WINDOW)),
        pictures.figure("loss", words("results.caption", window=WINDOW), words("results.alt"), wide=True),
        *pictures.note(words),
        Heading(words("results.numbers"), 3),
        number_table(
            words("results.table", window=WINDOW), result_header(words), result_rows(measured, words)
        ),
    ]
    return blocks


def sweep_table(result: Sweep, words: Words) -> Table:
    """The candidates of one optimizer; the chosen one is strong."""

    def cell(text: str, chosen: bool) -> str:
        return f"**{text}**" if chosen else text

    trials = [(trial, trial == result.best) for trial in result.trials]
    losses = [
        words("sweep.diverged") if trial.diverged else f"{trial.validation_loss:.4f}" for trial, _ in trials
    ]
    header = [words("sweep.rate_row"), *(cell(f"{trial.rate:g}", chosen) for trial, chosen in trials)]
    row = [words("sweep.loss_row"), *(cell(t, chosen) for t, (_, chosen) in zip(losses, trials, strict=True))]
    caption = words("sweep.table", optimizer=words(f"name.{result.optimizer}"))
    return number_table(caption, header, [row])


def sweep_notes(result: Sweep, words: Words) -> list[str]:
    """What must be said about a search whose best candidate stood at the edge."""
    name, notes = words(f"name.{result.optimizer}"), list[str]()
    if result.extended:
        notes.append(words("sweep.extended", optimizer=name, added=result.extended))
    if result.at_edge:
        notes.append(words("sweep.at_edge", optimizer=name, rate=result.best.rate))
    return notes
