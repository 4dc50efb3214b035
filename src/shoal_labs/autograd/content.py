"""What fills the lab's page: values, tables, code; and every timed round for other programs."""

from collections.abc import Callable

from shoal.kit.autograd import TapeEntry
from shoal.kit.base import Phrase
from shoal.kit.findings import inside_run
from shoal.kit.page import Records
from shoal_labs.autograd import course
from shoal_labs.autograd.experiment import (
    FEATURES,
    RIVALS,
    SAMPLES,
    AutogradMeasurements,
    from_the_left,
    recurring,
)
from shoal_labs.autograd.networks import Network
from shoal_labs.autograd.plan import ENGINES, NETWORKS
from shoal_labs.page.page import folded, source
from shoal_labs.page.table import PageTable
from shoal_labs.page.template import Content
from shoal_labs.timing.contest import Contest

TAPES = ("plain", "sharing")


def content(measured: AutogradMeasurements) -> Content:
    """Everything but figures and findings."""
    plan, networks, refusal = measured.plan, measured.networks, measured.branch.refusal
    return Content(
        values={
            **{name: network.parameters for name, network in networks.items()},
            **{f"{name}_cold": inside_run(network.cold_ms) for name, network in networks.items()},
            **{f"{name}_again": network.again_ms for name, network in networks.items()},
            "batch": plan.batch_size,
            "rounds": plan.rounds,
            "contest": plan.contest_s,
            "samples": SAMPLES,
            "features": FEATURES,
            "distinct": plan.distinct,
            "before": measured.course.operations_written,
            "after": measured.course.operations_compiled,
        },
        each={
            "elements": [{"position": position} for position in range(course.ELEMENTS)],
            "networks": [{"network": name} for name in NETWORKS],
            "tapes": [{"tape": Phrase(f"rival.{name}")} for name in TAPES],
            "orders": [{"order": Phrase(f"rival.{name}")} for name in ("written", "compiled")],
            "refused": [{}] * bool(refusal),
        },
        tables={
            "course": _worked_example(measured),
            "time": _times(measured),
            "passes": _passes(measured),
            "memory": _memory(measured),
            "caching": _caching(measured),
            "chain": _chain(measured),
        },
        code={
            "worked": source(course.simple) + "\n" + source(course.worked),
            "propagate": source(TapeEntry.propagate),
            "recurring": source(recurring),
            "chain": source(from_the_left),
            "trace": "\n".join(measured.course.trace),
            "compiled": measured.course.source,
            "branch": source(course.doubled_if_positive),
            "refusal": folded(refusal),
        },
    )


def _worked_example(measured: AutogradMeasurements) -> PageTable:
    """The values and their gradients, element by element."""
    found = measured.course
    columns = {"value": "", **{f"[{position}]": ".4f" for position in range(len(found.a))}}
    values = {"a": found.a, "b": found.b, "∂L/∂a": found.da, "∂L/∂b": found.db}
    return PageTable(columns, [[name, *tensor.tolist()] for name, tensor in values.items()])


def _times(measured: AutogradMeasurements) -> PageTable:
    """A training step and forward passes of every network."""
    columns = {"what": "", **{f"{engine} (ms)": ".3f" for engine in ENGINES}, "static / dynamic": ".2f"}
    timed = [
        (what, contest)
        for name, network in measured.networks.items()
        for what, contest in (
            (Phrase("time.step", {"network": name}), network.step),
            *(
                (Phrase("time.forward", {"network": name, "samples": n}), one)
                for n, one in network.forward.items()
            ),
        )
    ]
    return PageTable(
        columns,
        [
            [what, *(contest.ms(engine) for engine in ENGINES), contest.ratio("static", "dynamic")]
            for what, contest in timed
        ],
    )


def _passes(measured: AutogradMeasurements) -> PageTable:
    """Operations and bytes written, before the first pass and after each."""
    columns = {"graph": ""}
    columns |= {f"{name}: operations": ",d" for name in NETWORKS}
    columns |= {f"{name}: written (KiB)": ",.1f" for name in NETWORKS}
    return PageTable(
        columns,
        [
            [
                Phrase(f"pass.{stages[0].name.replace(' ', '_')}"),
                *(stage.num_operations for stage in stages),
                *(stage.num_bytes / 1024 for stage in stages),
            ]
            for stages in zip(*(measured.networks[name].stages for name in NETWORKS), strict=True)
        ],
    )


def _memory(measured: AutogradMeasurements) -> PageTable:
    """The most bytes held at once, and what the memory plan saves."""

    def row(what: Phrase, number: Callable[[Network], int]) -> list[Phrase | float]:
        return [what, *(number(measured.networks[name]) / 1024 for name in NETWORKS)]

    def peak(engine: str) -> list[Phrase | float]:
        what = Phrase("memory.peak", {"engine": Phrase(f"engine.{engine}")})
        return row(what, lambda network: network.peak[engine])

    return PageTable(
        {"what": "", **{f"{name} (KiB)": ",.1f" for name in NETWORKS}},
        [
            *map(peak, ENGINES),
            row(Phrase("memory.separate"), lambda network: network.separate_bytes),
            row(Phrase("memory.planned"), lambda network: network.planned_bytes),
        ],
    )


def _caching(measured: AutogradMeasurements) -> PageTable:
    """Sharing on the tape, where something recurs and where nothing does."""
    columns = {"what": ""}
    columns |= {f"entries, {tape}": ",d" for tape in TAPES} | {
        f"kept, {tape} (KiB)": ",.1f" for tape in TAPES
    }
    columns |= {"plain (ms)": ".3f", "sharing (ms)": ".3f", "sharing / plain": ".2f"}
    rows = [("recurring", tapes) for tapes in measured.caching.recurring]
    return PageTable(
        columns,
        [
            [
                Phrase(f"caching.{what}", {"count": tapes.count}),
                tapes.plain_entries,
                tapes.sharing_entries,
                tapes.plain_bytes / 1024,
                tapes.sharing_bytes / 1024,
                *(tapes.time.ms(tape) for tape in TAPES),
                tapes.time.ratio("sharing", "plain"),
            ]
            for what, tapes in [*rows, ("distinct", measured.caching.distinct)]
        ],
    )


def _chain(measured: AutogradMeasurements) -> PageTable:
    """The order of a chain of products."""
    columns = {"n": "d", "multiplications, written": ",d", "multiplications, compiled": ",d"}
    columns |= {f"{rival} (ms)": ".3f" for rival in RIVALS} | {"compiled / written": ".3f"}
    return PageTable(
        columns,
        [
            [
                one.size,
                one.multiplications_written,
                one.multiplications_compiled,
                *(one.time.ms(rival) for rival in RIVALS),
                one.time.ratio("compiled", "written"),
            ]
            for one in measured.chains
        ],
    )


def tables(measured: AutogradMeasurements) -> dict[str, Records]:
    """What no table of the page shows: every round of everything that was timed."""
    networks, distinct = measured.networks, measured.caching.distinct
    contests: dict[str, Contest] = {
        **{f"{name} step": network.step for name, network in networks.items()},
        **{
            f"{name} forward {n}": one
            for name, network in networks.items()
            for n, one in network.forward.items()
        },
        **{f"recurring {tapes.count}": tapes.time for tapes in measured.caching.recurring},
        f"distinct {distinct.count}": distinct.time,
        **{f"chain {chain.size}": chain.time for chain in measured.chains},
    }
    return {
        "times": [
            {"experiment": experiment, "rival": rival, "round": number, "seconds (s)": f"{second:.6g}"}
            for experiment, contest in contests.items()
            for rival, seconds in contest.seconds.items()
            for number, second in enumerate(seconds)
        ]
    }
