"""The sections of the report on slow workers."""

from shoal.report.document import Block, Bullets, Code, Formula, Heading, Paragraph, Table
from shoal.report.findings import of_samples
from shoal.strategies.server.ledger import Ledger
from shoal.training.hooks.balance import balanced
from shoal_labs.optimise.straggler import plan as lab
from shoal_labs.optimise.straggler.measure import StragglerMeasurements
from shoal_labs.page.page import Page, source


def principle(page: Page) -> list[Block]:
    """What a slow worker costs, and who waits for whom in each way."""
    return [
        *page.parts("principle", ["straggler"]),
        Formula(page("principle.straggler_formula")),
        Paragraph(page("principle.straggler_ways")),
        Bullets([page(f"explained.{way}", bound=lab.STALENESS) for way in lab.WAYS]),
        Paragraph(page("principle.staleness")),
    ]


def code(page: Page) -> list[Block]:
    """What decides who waits, from the source itself."""
    return [
        Code(source(Ledger.release), page("code.release")),
        Code(source(balanced), page("code.balanced")),
    ]


def set_up(measured: StragglerMeasurements, page: Page) -> list[Block]:
    """Workers, what makes them slow, runs."""
    plan = measured.plan
    sentences = [
        page(
            "setup.stragglers",
            model=plan.model.name,
            workers=plan.workers,
            batch=lab.BATCH_SIZE,
            lr=lab.LR,
            momentum=lab.MOMENTUM,
            samples=measured.samples,
            data=plan.data.name,
            epochs=page.words.counted("epoch", plan.size.epochs),
        ),
        page(
            "setup.slow",
            all=lab.SPEED_OF_ALL,
            rank=plan.slow,
            slowdown=lab.SLOWDOWN,
            delay=lab.DELAY_MS,
        ),
        page("setup.epochs", target=100 * lab.TARGET),
    ]
    return [Heading(page("setup.straggler_heading"), 3), Bullets(sentences)]


def results(measured: StragglerMeasurements, page: Page) -> list[Block]:
    """Throughput, time to accuracy, staleness."""
    return [
        *page.section("throughput"),
        page.figure("throughput"),
        table(measured, page),
        *page.section("learning", target=100 * lab.TARGET),
        page.figure("learning"),
        *page.section("staleness", workers=measured.plan.workers, others=measured.plan.workers - 1),
        page.figure("staleness"),
        staleness_table(measured, page),
    ]


def table(measured: StragglerMeasurements, page: Page) -> Table:
    """Every way under every condition."""
    rows: list[list[str]] = []
    for (condition, way), watched in measured.ways.items():
        reached = watched.time_to(lab.TARGET)
        rows.append(
            [
                page(f"straggler.{condition}"),
                page(f"way.{way}"),
                f"{watched.rate:.0f}",
                f"{watched.ideal.value:.0f}",
                f"{100 * watched.rate.value / watched.ideal.value:.0f}",
                "–" if reached is None else f"{reached:.1f}",
                f"{of_samples(watched.accuracies[-1], measured.validation_samples).scaled(100):.1f}",
            ]
        )
    header = page.header("throughput", "straggler", "way", "rate", "ideal", "part", "time", "last")
    right = frozenset(range(2, 7))
    return page.table("throughput", header, rows, right=right, target=100 * lab.TARGET)


def staleness_table(measured: StragglerMeasurements, page: Page) -> Table:
    """Staleness of all updates, and of the slow worker's."""
    slow = measured.plan.slow
    rows: list[list[str]] = []
    for (condition, way), watched in measured.ways.items():
        if not watched.updates:
            continue
        own = [update.staleness for update in watched.updates if update.rank == slow]
        rows.append(
            [
                page(f"straggler.{condition}"),
                page(f"way.{way}"),
                f"{watched.mean_staleness:.2f}",
                f"{max(watched.staleness)}",
                f"{sum(own) / len(own):.2f}" if own else "–",
                f"{len(own)} / {len(watched.updates)}",
                f"{watched.dropped}",
            ]
        )
    header = page.header(
        "staleness", "straggler", "way", "mean", "most", "slow", "pushes", "dropped", slow=slow
    )
    return page.table("staleness", header, rows, right=frozenset(range(2, 7)), slow=slow)
