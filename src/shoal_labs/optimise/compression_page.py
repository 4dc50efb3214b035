"""The page of gradient compression: claims and places."""

from collections.abc import Sequence

from shoal.kit.base import Phrase
from shoal.kit.findings import Finding, Number, Paired, Verdict, by_rounds, by_seeds, first_lower, over_seeds
from shoal.kit.page import Records
from shoal.kit.settings import Link
from shoal.kit.strategies import Candidate, Choice, Compressed, TopK
from shoal_labs.claims import Bound, Claim, Computed, Pair
from shoal_labs.numbers import no_worse, whether
from shoal_labs.optimise import compression
from shoal_labs.optimise.compression import (
    BATCH_SIZE,
    CODECS,
    LINKS,
    NONE,
    SLOWEST,
    SPARSE_RATIO,
    CompressionMeasurements,
)
from shoal_labs.optimise.compression_figures import MOST_GAIN, figures, named
from shoal_labs.optimise.part import Part
from shoal_labs.page.page import source
from shoal_labs.page.table import PageTable
from shoal_labs.page.template import Content

POINT = 0.01
"""The accuracy that a codec may cost."""
NEAR = 1.05
"""A choice whose step takes at most this many times the best one's is near it."""
FASTEST = next(iter(LINKS))
COMPRESSING = CODECS[1:]
SHOWN = {"exchange": Compressed.__call__, "topk": TopK, "candidate": Candidate, "choice": Choice.chosen.fget}
"""The code that the page prints."""


# ── claims ──


def _bytes(measured: CompressionMeasurements) -> dict[str, Number]:
    """On the wire, every codec sends the bytes that follow from what it declares."""
    sent = {codec: timed.sent_bytes for codec, timed in measured.timed[FASTEST].items()}
    right = sum(sent[codec] == measured.expected_bytes(codec) for codec in sent)
    fewest = min(sent, key=lambda codec: sent[codec])
    return {"right": right, "codecs": len(sent), "fewest": fewest, "ratio": max(sent.values()) / sent[fewest]}


def _compared(measured: CompressionMeasurements, link: str, first: str, second: str) -> Paired:
    """Steps of two codecs on one link, which took turns."""
    timed = measured.timed[link]
    return by_rounds(timed[first].rounds_ms, timed[second].rounds_ms)


def _winner(link: str, name: str, rule: str) -> Pair[CompressionMeasurements]:
    """No compression, and the fastest codec of a link; the rule says which of them is compared with the other."""
    ways = rule.split()[::2]

    def pair(measured: CompressionMeasurements) -> Paired:
        codecs = {"dense": NONE, "best": measured.fastest(link, COMPRESSING)}
        return _compared(measured, link, *(codecs[way] for way in ways))

    return Pair(
        name,
        rule,
        pair,
        lambda m: {"codec": m.fastest(link, COMPRESSING), "ratio": pair(m).ratio},
    )


def _fewest(measured: CompressionMeasurements) -> tuple[str, str]:
    """The codec with the fewest bytes, and the fastest other on the slowest link."""
    fewest = min(CODECS, key=lambda codec: measured.declared[codec])
    return fewest, measured.fastest(SLOWEST, [codec for codec in CODECS if codec != fewest])


def rate_of(link: str) -> float:
    """The rate of a simulated link in bit/s; infinite for loopback."""
    return Link.from_text(LINKS[link][0]).bits_per_s if LINKS[link] else float("inf")


def break_even_predicts(measured: CompressionMeasurements) -> Finding:
    """A codec makes a step shorter on exactly the links below its break-even rate."""
    pays = {
        (link, codec): first_lower(_compared(measured, link, codec, NONE))
        for link in LINKS
        for codec in COMPRESSING
    }
    decided = {pair: verdict for pair, verdict in pays.items() if verdict != "undecided"}
    right = sum(
        (verdict == "holds") == (rate_of(link) < measured.break_even[codec])
        for (link, codec), verdict in decided.items()
    )
    numbers = {"right": right, "decided": len(decided), "pairs": len(pays)}
    verdict: Verdict = whether(right == len(decided)) if decided else "undecided"
    return Finding("break_even_predicts", numbers, verdict, timed=True)


def accuracy_is_kept(measured: CompressionMeasurements) -> Finding:
    """No codec costs more than a point of accuracy; losses are formed seed by seed."""
    found = measured.accuracies
    pairs = {codec: by_seeds(found[NONE], found[codec]) for codec in COMPRESSING}
    verdicts: list[Verdict] = [no_worse(pair, POINT) for pair in pairs.values()]
    worst = max(pairs, key=lambda codec: pairs[codec].difference.value)
    numbers = {
        "dense": pairs[worst].first.scaled(100),
        "worst": worst,
        "loss": 100 * pairs[worst].difference.value,
        "codecs": len(pairs),
        "point": 100 * POINT,
    }
    return Finding("accuracy_is_kept", numbers, all_hold(verdicts))


def _feedback(measured: CompressionMeasurements) -> Paired:
    return by_seeds(*(measured.accuracies[name] for name in ("sparse", "sparse-forgetful")))


def _choices(measured: CompressionMeasurements) -> dict[str, Number]:
    """On loopback `auto` chooses no compression, on the slowest link a codec."""
    chosen = {link: choice.codec for link, choice in measured.chosen.items()}
    each = [{"link": Phrase(f"link.{link}"), "codec": named(codec)} for link, codec in chosen.items()]
    return {
        "choices": tuple(Phrase("each.choice", values) for values in each),
        "none_on_fast": chosen[FASTEST] == NONE,
        "some_on_slow": chosen[SLOWEST] != NONE,
    }


def auto_is_near_the_best(measured: CompressionMeasurements) -> Finding:
    """On every link, a step with the codec that `auto` chose takes at most 5 % longer than with the best codec.

    Both are from the rotation, where the codecs took turns in one state of the machine.
    """
    rounds = {
        link: tuple(measured.timed[link][codec].rounds_ms for codec in (choice.codec, measured.fastest(link)))
        for link, choice in measured.chosen.items()
    }
    steps = {link: by_rounds(*each) for link, each in rounds.items()}
    near: list[Verdict] = [
        first_lower(by_rounds(its, [NEAR * ms for ms in best])) for its, best in rounds.values()
    ]
    worst = max(steps, key=lambda link: steps[link].ratio)
    numbers: dict[str, Number] = {
        "ratios": tuple(
            Phrase("each.ratio", {"link": Phrase(f"link.{link}"), "ratio": each.ratio})
            for link, each in steps.items()
        ),
        "worst": Phrase(f"link.{worst}"),
        "chosen": steps[worst].first,
        "best": steps[worst].second,
        "percent": 100 * (NEAR - 1),
    }
    return Finding("auto_is_near_the_best", numbers, all_hold(near), timed=True)


def all_hold(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several claims at once."""
    return "fails" if "fails" in verdicts else "undecided" if "undecided" in verdicts else "holds"


CLAIMS: tuple[Claim[CompressionMeasurements], ...] = (
    Bound("bytes_as_declared", "right == codecs", _bytes),
    _winner(SLOWEST, "pays_on_a_slow_link", "dense > best"),
    _winner(FASTEST, "not_on_a_fast_link", "best > dense"),
    Pair(
        "fewest_bytes_win",
        "fewest < other",
        lambda m: _compared(m, SLOWEST, *_fewest(m)),
        lambda m: dict(zip(("codec", "rival"), _fewest(m), strict=True)),
    ),
    Computed("break_even_predicts", break_even_predicts),
    Computed("accuracy_is_kept", accuracy_is_kept),
    Pair(
        "feedback_is_needed",
        "remembers > forgets",
        _feedback,
        lambda m: {"lead": 100 * _feedback(m).difference.value, "percent": 100 * SPARSE_RATIO},
        scale=100,
    ),
    Bound("auto_adapts", "none_on_fast and some_on_slow", _choices, timed=True),
    Computed("auto_is_near_the_best", auto_is_near_the_best),
)


# ── places of the page ──


def content(measured: CompressionMeasurements) -> Content:
    """Everything but figures and findings."""
    plan, size = measured.plan, measured.plan.size
    values = {
        "data": plan.data.name,
        "model": plan.model.name,
        "parameters": measured.parameters,
        "kib": 4 * measured.parameters / 1024,
        "workers": plan.workers,
        "batch": BATCH_SIZE,
        "codecs": len(CODECS),
        "turn": size.turn,
        "rounds": size.rounds,
        "auto_steps": size.auto_steps,
        "learn_steps": size.learn_steps,
        "seeds": plan.seeds,
        "agreement": compression.AGREEMENT_BYTES * (plan.workers - 1),
        "percent": 100 * SPARSE_RATIO,
        "most": MOST_GAIN,
    }
    return Content(
        each={"compression": [values], "links": [{"link": Phrase(f"link.{link}")} for link in LINKS]},
        tables={
            "steps": _steps(measured),
            "pareto": _pareto(measured),
            "codecs": _codecs(measured),
            "auto": _auto(measured),
        },
        code={name: source(what) for name, what in SHOWN.items() if what is not None},
    )


def _steps(measured: CompressionMeasurements) -> PageTable:
    """Bytes of a step, and its time on every link."""
    columns = {"codec": "", "sent by a worker (B)": ",d", **{f"step, {link} (ms)": ".1f" for link in LINKS}}
    return PageTable(
        columns,
        [
            [
                named(codec),
                measured.timed[FASTEST][codec].sent_bytes,
                *(measured.timed[link][codec].step_ms for link in LINKS),
            ]
            for codec in CODECS
        ],
    )


def _pareto(measured: CompressionMeasurements) -> PageTable:
    """What a codec costs in accuracy, and the links on which no other beats it."""
    fronts = {link: measured.front(link) for link in LINKS}
    return PageTable(
        {"exchange": "", "test accuracy (%)": ".2f", "on the Pareto front of": ""},
        [
            [
                named(name),
                over_seeds(found).scaled(100),
                [Phrase(f"link.{link}") for link in LINKS if name in fronts[link]] or None,
            ]
            for name, found in measured.accuracies.items()
        ],
    )


def _codecs(measured: CompressionMeasurements) -> PageTable:
    """Where each codec stops paying."""
    columns = {"codec": "", "encode and decode (ms)": ".2f", "declared (B)": ",d"}
    columns |= {"sent by a worker, by formula (B)": ",d", "break-even (Gbit/s)": ".2g"}
    return PageTable(
        columns,
        [
            [
                named(codec),
                measured.local_ms[codec],
                measured.declared[codec],
                measured.expected_bytes(codec),
                None if codec == NONE else measured.break_even[codec] / 1e9,
            ]
            for codec in CODECS
        ],
    )


def _auto(measured: CompressionMeasurements) -> PageTable:
    """What `auto` measured and chose on every link, beside the best codec of the rotation."""
    columns = {"link": "", "measured (Mbit/s)": ",.0f", "chosen": "", "predicted exchange (ms)": ".1f"}
    columns |= {"predicted exchange, uncompressed (ms)": ".1f", "step after the choice (ms)": ".1f"}
    return PageTable(
        {**columns, "fastest": "", "step of the fastest (ms)": ".1f"},
        [
            [
                Phrase(f"link.{link}"),
                chosen.link_bits_per_s / 1e6,
                named(chosen.codec),
                chosen.predicted_ms[chosen.codec],
                chosen.predicted_ms[NONE],
                chosen.step_ms,
                named(best),
                measured.timed[link][best].step_ms,
            ]
            for link, chosen in measured.chosen.items()
            for best in [measured.fastest(link)]
        ],
    )


def tables(measured: CompressionMeasurements) -> dict[str, Records]:
    """What no table of the page shows: the parts of a step, every seed, every candidate of `auto`."""
    return {
        "steps_runs": [
            {
                "link": link,
                "codec": codec,
                "step (ms)": timed.step_ms.value,
                "spread (ms)": timed.step_ms.spread,
                "outside of the exchange (ms)": timed.own_ms,
                "exchange (ms)": timed.exchange_ms,
                "of it, encoding and decoding (ms)": timed.encode_ms,
                "sent by a worker (B)": timed.sent_bytes,
            }
            for link, codecs in measured.timed.items()
            for codec, timed in codecs.items()
        ],
        "accuracy": [
            {"exchange": name, "seed": seed, "test accuracy (1)": accuracy}
            for name, accuracies in measured.accuracies.items()
            for seed, accuracy in zip(measured.plan.seeds, accuracies, strict=True)
        ],
        "auto_runs": [
            {
                "link": link,
                "candidate": codec,
                "chosen": codec == choice.codec,
                "encode and decode (ms)": choice.local_ms[codec],
                "predicted exchange (ms)": predicted,
            }
            for link, choice in measured.chosen.items()
            for codec, predicted in choice.predicted_ms.items()
        ],
    }


COMPRESSION = Part(
    plan=compression.plan_for,
    runs=compression.CompressionPlan.runs,
    measure=compression.measure,
    claims=CLAIMS,
    figures=figures,
    content=content,
    tables=tables,
)
