"""The sections of the report that are particular to the lab."""

from shoal.codecs.sparse import TopK
from shoal.report.document import Block, Bullets, Code, Formula, Heading, Paragraph, Table
from shoal.report.findings import over_seeds
from shoal.strategies.exchange.choice import Candidate, Choice
from shoal.strategies.exchange.compressed import Compressed
from shoal_labs.optimise.compression.figures import MOST_GAIN, label_of
from shoal_labs.optimise.compression.measure import AGREEMENT_BYTES, CompressionMeasurements
from shoal_labs.optimise.compression.plan import BATCH_SIZE, CODECS, FEEDBACK, LINKS, NONE, SPARSE_RATIO
from shoal_labs.page.page import Page, source

SHOWN = {
    "exchange": Compressed.__call__,
    "topk": TopK,
    "candidate": Candidate,
    "choice": Choice.chosen.fget,
}
"""The code that the report prints."""


def principle(page: Page) -> list[Block]:
    """When a code of the gradient is faster than the gradient, and why feedback keeps the sum."""
    return [
        *page.parts("principle", ["problem"]),
        Formula(page("principle.formula")),
        Paragraph(page("principle.break_even")),
        Formula(page("principle.break_even_formula")),
        *page.parts("principle", ["codecs"]),
        Bullets([page(f"explained.{codec}") for codec in CODECS[1:]]),
        *page.parts("principle", ["feedback"]),
        Formula(page("principle.feedback_formula")),
        *page.parts("principle", ["auto"]),
    ]


def code(page: Page) -> list[Block]:
    """What ran, from the source itself."""
    return [Code(source(what), page(f"code.{name}")) for name, what in SHOWN.items() if what is not None]


def set_up(measured: CompressionMeasurements, page: Page) -> list[Block]:
    """Data, model, links, runs."""
    plan, size = measured.plan, measured.plan.size
    sentences = [
        page(
            "setup.model",
            data=plan.data.name,
            model=plan.model.name,
            parameters=measured.parameters,
            kib=4 * measured.parameters / 1024,
        ),
        page("setup.training", workers=plan.workers, batch=BATCH_SIZE),
        page("setup.links"),
        page("setup.rotation", codecs=len(CODECS), turn=size.turn, rounds=size.rounds),
        page("setup.auto", steps=size.auto_steps),
        page("setup.learn", steps=size.learn_steps, seeds=plan.seeds),
    ]
    return [Heading(page("setup.compression_heading"), 3), Bullets(sentences)]


def results(measured: CompressionMeasurements, page: Page) -> list[Block]:
    """All results, in the order of the questions."""
    return [
        *steps(measured, page),
        *accuracy(measured, page),
        *break_even(measured, page),
        *choice(measured, page),
    ]


def steps(measured: CompressionMeasurements, page: Page) -> list[Block]:
    """What a step takes and sends, by link and codec."""
    return [*page.section("steps"), page.figure("steps"), step_table(measured, page)]


def step_table(measured: CompressionMeasurements, page: Page) -> Table:
    """Bytes of a step, and its time on every link."""
    rows = [
        [
            label_of(codec, page.words),
            f"{measured.timed['loopback'][codec].sent_bytes:,}",
            *(f"{measured.timed[link][codec].step_ms:.1f}" for link in LINKS),
        ]
        for codec in CODECS
    ]
    times = [page("steps.ms", link=page(f"link.{link}")) for link in LINKS]
    return page.table(
        "steps",
        [*page.header("steps", "codec", "bytes"), *times],
        rows,
        agreement=AGREEMENT_BYTES * (measured.plan.workers - 1),
    )


def accuracy(measured: CompressionMeasurements, page: Page) -> list[Block]:
    """What a codec costs in accuracy, and which codecs no other beats."""
    fronts = {link: measured.front(link) for link in LINKS}
    rows = [
        [
            page(f"codec.{name.replace('-', '_')}") if name in (NONE, *FEEDBACK) else name,
            f"{over_seeds(found).scaled(100):.2f}",
            page.words.listed(page(f"link.{link}") for link in LINKS if name in fronts[link]) or "–",
        ]
        for name, found in measured.accuracies.items()
    ]
    header = page.header("pareto", "codec", "accuracy", "front")
    return [
        *page.section("pareto"),
        page.figure("pareto"),
        page.table("pareto", header, rows, right=frozenset({1}), percent=100 * SPARSE_RATIO),
    ]


def break_even(measured: CompressionMeasurements, page: Page) -> list[Block]:
    """Where each codec stops paying."""
    rows = [
        [
            codec,
            f"{measured.local_ms[codec]:.2f}",
            f"{measured.expected_bytes(codec):,}",
            f"{measured.break_even[codec] / 1e9:.2g}",
        ]
        for codec in CODECS[1:]
    ]
    header = page.header("map", "codec", "local", "bytes", "rate")
    return [
        *page.section("map"),
        page.figure("map", most=MOST_GAIN),
        page.figure("crossing"),
        page.table("map", header, rows),
    ]


def choice(measured: CompressionMeasurements, page: Page) -> list[Block]:
    """What `auto` measured and chose on every link, beside the best codec of the rotation."""
    rows: list[list[str]] = []
    for link, chosen in measured.chosen.items():
        best = measured.fastest(link)
        rows.append(
            [
                page(f"link.{link}"),
                f"{chosen.link_bits_per_s / 1e6:,.0f}",
                label_of(chosen.codec, page.words),
                f"{chosen.predicted_ms[chosen.codec]:.1f}",
                f"{chosen.predicted_ms[NONE]:.1f}",
                f"{chosen.step_ms:.1f}",
                label_of(best, page.words),
                f"{measured.timed[link][best].step_ms:.1f}",
            ]
        )
    columns = ("link", "rate", "chosen", "predicted", "dense", "step", "best", "best_step")
    table = page.table("auto", page.header("auto", *columns), rows, right=frozenset({1, 3, 4, 5, 7}))
    return [*page.section("auto"), table]


def closing_table(measured: CompressionMeasurements, page: Page) -> Table:
    """For the terminal: bytes, accuracy, break-even rate and the times of all links."""
    rows = [
        [
            label_of(codec, page.words),
            f"{measured.timed['loopback'][codec].sent_bytes:,}",
            f"{100 * over_seeds(measured.accuracies[codec]).value:.1f}",
            f"{measured.break_even[codec] / 1e9:.2g}" if codec != NONE else "–",
            *(f"{measured.timed[link][codec].step_ms:.1f}" for link in LINKS),
        ]
        for codec in CODECS
    ]
    times = [page("closing.ms", link=page(f"link.{link}")) for link in LINKS]
    return Table("", [*page.header("closing", "codec", "bytes", "accuracy", "rate"), *times], rows)
