"""The report of the lab: principle, code, set-up, results, analysis, from measurements and words."""

from collections.abc import Mapping, Sequence

from shoal.data.division import order, partition
from shoal.labs.analysis import analysis
from shoal.labs.lab3 import own_loop, wrong_samplers
from shoal.labs.lab3.figures import curve_names, label_of
from shoal.labs.lab3.findings import groups_of
from shoal.labs.lab3.measure import Divided, Learnt, Measurements, Pace
from shoal.labs.lab3.own_loop import SELDOM, WRONG
from shoal.labs.lab3.plan import ALIKE, BATCH_SIZE, DIVISIONS, EQUAL_RATE, RATE, SLOW, SLOWDOWN, UNLIKE
from shoal.labs.numbers import listed, scientific
from shoal.labs.pictures import Pictures
from shoal.labs.sections import header_of, machine_table, number_table, opening, source
from shoal.labs.words import Words
from shoal.report.document import Block, Bullets, Code, Document, Formula, Heading, Paragraph, Table
from shoal.report.findings import Finding, lower


def document(
    measured: Measurements,
    command: str,
    machine: Mapping[str, str],
    findings: Sequence[Finding],
    pictures: Pictures,
    words: Words,
) -> Document:
    """The whole report."""
    plan = measured.plan
    blocks: list[Block] = [
        *opening(plan.quick, command, words),
        *principle(words),
        *code(words),
        *set_up(measured, machine, words),
        Heading(words("results.heading")),
        *owners(measured, pictures, words),
        *training(measured, pictures, words),
        *equality(measured, words),
        *speed(measured, pictures, words),
        *unlike(measured, words),
        *wrong(measured, pictures, words),
        *pictures.note(words),
        *analysis(groups_of(findings), findings, words),
    ]
    return Document(words("title", workers=listed(plan.workers)), words.lang, blocks)


def principle(words: Words) -> list[Block]:
    """What data parallelism is, and what a division of the data can and cannot change."""
    blocks: list[Block] = [
        Heading(words("principle.heading")),
        Paragraph(words("principle.problem")),
        Formula(words("principle.formula")),
        Paragraph(words("principle.equal")),
        Heading(words("principle.divisions_heading"), 3),
        Paragraph(words("principle.divisions")),
        Bullets([words(f"principle.{name}") for name in DIVISIONS if f"principle.{name}" in words.sentences]),
    ]
    for part in ("unlike", "speed", "errors"):
        blocks += [Heading(words(f"principle.{part}_heading"), 3), Paragraph(words(f"principle.{part}_text"))]
    return [*blocks, Formula(words("principle.coverage_formula"))]


def code(words: Words) -> list[Block]:
    """What ran, from the source itself."""
    shown = {
        "random": partition.random_partition,
        "sampling": order.sample_draws,
        "loop": own_loop.train_epoch,
        "seldom": own_loop.average_weights,
        "range": wrong_samplers.OneWorkersRange.__iter__,
        "rank_seed": wrong_samplers.SeedPerRank.__iter__,
    }
    return [
        Heading(words("code.heading")),
        Paragraph(words("code.intro")),
        *(Code(source(what), words(f"code.{name}")) for name, what in shown.items()),
    ]


def set_up(measured: Measurements, machine: Mapping[str, str], words: Words) -> list[Block]:
    """Data, model, runs, machine."""
    plan, size = measured.plan, measured.plan.size
    return [
        Heading(words("setup.heading")),
        Bullets(
            [
                words("setup.data", data=plan.data.name, **measured.num_samples),
                words("setup.model", model=plan.model.name, parameters=measured.parameters),
                words("setup.training", batch=BATCH_SIZE, rate=RATE, epochs=size.epochs),
                words("setup.seeds", seeds=listed(plan.seeds)),
                words("setup.timed", cores=plan.cores),
                words("setup.slow", slow=SLOW, slowdown=SLOWDOWN),
                words("setup.equal", steps=size.equal_steps, rate=EQUAL_RATE),
                words("setup.own"),
            ]
        ),
        machine_table(machine, words),
    ]


def owners(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """Who has which samples, and what of the data set is seen."""
    most, epochs = measured.plan.most, measured.plan.size.epochs
    header = header_of("owners", ("division", "parts", "skew", "coverage", "overlap"), words)
    header.append(words("owners.after_column", epochs=epochs))
    return [
        Heading(words("owners.heading"), 3),
        Paragraph(words("owners.intro", workers=most)),
        pictures.figure("owners", words("owners.caption", workers=most), words("owners.alt"), wide=True),
        number_table(
            words("owners.table", workers=most),
            header,
            [_owner_row(name, measured.divided[name, most], words) for name in DIVISIONS],
        ),
    ]


def _owner_row(name: str, divided: Divided, words: Words) -> list[str]:
    first = divided.seen[0]
    parts = first.first.per_worker
    return [
        label_of(name, words),
        f"{min(parts):,} – {max(parts):,}" if min(parts) < max(parts) else f"{max(parts):,}",
        f"{first.skew:.2f}",
        f"{100 * first.first.coverage:.1f}",
        f"{100 * first.first.overlap:.1f}",
        f"{100 * first.coverage[-1]:.1f}",
    ]


def training(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """Loss and accuracy of every division against one machine."""
    blocks: list[Block] = [Heading(words("training.heading"), 3), Paragraph(words("training.intro"))]
    for workers, name in curve_names(measured.plan.workers).items():
        caption = words("training.caption", workers=workers)
        blocks.append(pictures.figure(name, caption, words("training.alt", workers=workers), wide=True))
    single = measured.single
    rows = [[words("way.single"), *(cell for _ in measured.plan.workers for cell in _learnt_cells(single))]]
    for name in (*ALIKE, *UNLIKE):
        learnt = [measured.divided[name, workers].learnt for workers in measured.plan.workers]
        rows.append([label_of(name, words), *(cell for each in learnt for cell in _learnt_cells(each))])
    header = [words("training.division_column")]
    for workers in measured.plan.workers:
        header += [words(f"training.{part}_column", workers=workers) for part in ("loss", "accuracy")]
    return [*blocks, number_table(words("training.table"), header, rows)]


def _learnt_cells(learnt: Learnt) -> list[str]:
    return [f"{learnt.final_loss:.3f}", f"{learnt.test_accuracy.scaled(100):.2f}"]


def equality(measured: Measurements, words: Words) -> list[Block]:
    """What is the same as one machine, weight by weight."""
    steps, most = measured.plan.size.equal_steps, measured.plan.most
    rows = [
        [words("equality.global", workers=workers), scientific(difference)]
        for workers, difference in measured.from_single.items()
    ]
    rows += [
        [words("equality.same_order", division=label_of(name, words), workers=most), scientific(difference)]
        for name, difference in measured.from_same_order.items()
        if name != "global"
    ]
    return [
        Heading(words("equality.heading"), 3),
        Paragraph(words("equality.intro", steps=steps)),
        number_table(
            words("equality.table", steps=steps), header_of("equality", ("what", "difference"), words), rows
        ),
    ]


PACE_COLUMNS = ("speed", "all_cores", "one_core", "own", "wait", "move")


def speed(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """How fast, how many times as fast, and where the time goes."""
    blocks: list[Block] = [
        Heading(words("speed.heading"), 3),
        Paragraph(words("speed.intro", cores=measured.plan.cores)),
        pictures.figure("speed", words("speed.caption"), words("speed.alt"), wide=True),
    ]
    header = header_of("speed", ("division", *PACE_COLUMNS), words)
    for workers in measured.plan.workers:
        caption = words("speed.table", workers=workers)
        blocks.append(number_table(caption, header, _pace_rows(measured, workers, words)))
    # On a busy machine this happens, and a speed-up of eight on two cores wants an explanation.
    slow = lower(measured.one_core.sample_ms, measured.all_cores.sample_ms) == "holds"
    return [*blocks, Paragraph(words("speed.slow_all_cores"))] if slow else blocks


def _pace_rows(measured: Measurements, workers: int, words: Words) -> list[list[str]]:
    timed = [(name, measured.divided[name, workers].pace) for name in DIVISIONS]
    named = [
        (words("way.all_cores", cores=measured.plan.cores), measured.all_cores),
        (words("way.one_core"), measured.one_core),
        *((label_of(name, words), pace) for name, pace in timed if name != "speed"),
        (words("way.slow_random"), measured.slow_random[workers]),
        *((words("way.slow_speed"), pace) for name, pace in timed if name == "speed"),
    ]
    return [[label, *_pace_cells(pace)] for label, pace in named if pace]


def _pace_cells(pace: Pace) -> list[str]:
    return [
        f"{pace.samples_per_s:,.0f}",
        f"{pace.against_all_cores:.2f}",
        f"{pace.against_one_core:.2f}",
        *(f"{100 * part:.0f}" for part in (pace.own, pace.wait, pace.move)),
    ]


def unlike(measured: Measurements, words: Words) -> list[Block]:
    """Different data for different workers: agreeing in every step, and once an epoch."""
    most = measured.plan.most
    rows = [
        [words("unlike.step"), label_of(name, words), _percent(measured.divided[name, most])]
        for name in ("random", "label")
    ]
    rows += [
        [
            words("unlike.epoch"),
            label_of(way.removeprefix("seldom-"), words),
            f"{measured.own[way, most].learnt.test_accuracy.scaled(100):.2f}",
        ]
        for way in SELDOM
    ]
    header = header_of("unlike", ("agree", "division", "accuracy"), words)
    return [
        Heading(words("unlike.heading"), 3),
        Paragraph(words("unlike.intro")),
        Table(words("unlike.table", workers=most), header, rows, frozenset({2})),
    ]


def _percent(divided: Divided) -> str:
    return f"{divided.learnt.test_accuracy.scaled(100):.2f}"


def wrong(measured: Measurements, pictures: Pictures, words: Words) -> list[Block]:
    """The two classic errors: what they see, what they do, and what would have told."""
    rows: list[list[str]] = []
    for workers in measured.plan.workers:
        for way in ("right", *WRONG):
            own = measured.own[way, workers]
            rows.append(
                [
                    label_of(way, words),
                    str(workers),
                    f"{own.first_coverage.scaled(100):.1f}",
                    f"{100 * own.predicted:.1f}",
                    f"{100 * own.coverage[:, -1].mean():.1f}",
                    f"{own.learnt.final_loss:.3f}",
                    f"{own.learnt.test_accuracy.scaled(100):.2f}",
                ]
            )
    columns = ("sampler", "workers", "coverage", "formula", "after", "loss", "accuracy")
    return [
        Heading(words("wrong.heading"), 3),
        Paragraph(words("wrong.intro")),
        pictures.figure("samplers", words("wrong.caption"), words("wrong.alt"), wide=True),
        number_table(
            words("wrong.table", epochs=measured.plan.size.epochs), header_of("wrong", columns, words), rows
        ),
        Paragraph(words("wrong.told")),
        Bullets(
            [
                words("wrong.said", sampler=label_of(way, words), said=said or words("wrong.nothing"))
                for way, said in measured.refusals.items()
            ]
        ),
    ]


RESULT_COLUMNS = ("division", "workers", "accuracy", "coverage", "speed", "all_cores", "one_core", "comm")


def result_header(words: Words) -> list[str]:
    """Columns of the closing table on the terminal, with units."""
    return header_of("results", RESULT_COLUMNS, words)


def result_rows(measured: Measurements, words: Words) -> list[list[str]]:
    """One machine, then every division with every number of workers."""
    one = measured.one_core
    rows = [
        [
            words("way.single"),
            "1",
            f"{measured.single.test_accuracy.scaled(100):.1f}",
            "100.0",
            f"{one.samples_per_s:,.0f}",
            f"{one.against_all_cores:.2f}",
            "1.00",
            "0",
        ]
    ]
    for workers in measured.plan.workers:
        for name in DIVISIONS:
            divided = measured.divided[name, workers]
            pace = divided.pace
            rows.append(
                [
                    label_of(name, words),
                    str(workers),
                    f"{divided.learnt.test_accuracy.scaled(100):.1f}",
                    f"{divided.coverage.value * 100:.1f}",
                    f"{pace.samples_per_s:,.0f}" if pace else "–",
                    f"{pace.against_all_cores:.2f}" if pace else "–",
                    f"{pace.against_one_core:.2f}" if pace else "–",
                    f"{100 * pace.communication:.0f}" if pace else "–",
                ]
            )
    return rows
