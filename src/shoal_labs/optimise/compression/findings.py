"""The findings of the lab: which numbers go into which claim."""

from collections.abc import Mapping

from shoal.config.conditions import Link
from shoal.report.findings import Finding, Verdict
from shoal.report.paired import Paired, by_rounds, first_lower
from shoal_labs.optimise.compression import claims
from shoal_labs.optimise.compression.measure import CompressionMeasurements, Timed
from shoal_labs.optimise.compression.plan import CODECS, LINKS, NONE, SLOWEST, SPARSE_RATIO

FASTEST = next(iter(LINKS))
COMPRESSING = CODECS[1:]


def find(measured: CompressionMeasurements) -> dict[str, list[Finding]]:
    """The findings, by section of the analysis."""
    return {
        "bytes": _bytes(measured),
        "time": _time(measured),
        "accuracy": _accuracy(measured),
        "choice": _choice(measured),
    }


def rate_of(link: str) -> float:
    """The rate of a simulated link in bit/s; infinite for loopback."""
    return Link.from_text(LINKS[link][0]).bits_per_s if LINKS[link] else float("inf")


def _bytes(measured: CompressionMeasurements) -> list[Finding]:
    sent = {codec: timed.sent_bytes for codec, timed in measured.timed[FASTEST].items()}
    return [claims.bytes_as_declared(sent, {codec: measured.expected_bytes(codec) for codec in sent})]


def _time(measured: CompressionMeasurements) -> list[Finding]:
    slow, fast = measured.timed[SLOWEST], measured.timed[FASTEST]
    winner, rival = measured.fastest(SLOWEST, COMPRESSING), measured.fastest(FASTEST, COMPRESSING)
    fewest = min(CODECS, key=lambda codec: measured.declared[codec])
    second = measured.fastest(SLOWEST, [codec for codec in CODECS if codec != fewest])
    pairs = [(link, codec) for link in LINKS for codec in COMPRESSING]
    pays: dict[tuple[str, str], Verdict] = {
        (link, codec): first_lower(_compared(measured.timed[link], codec, NONE)) for link, codec in pairs
    }
    below = {(link, codec): rate_of(link) < measured.break_even[codec] for link, codec in pairs}
    return [
        claims.pays_on_a_slow_link(_compared(slow, NONE, winner), winner),
        claims.not_on_a_fast_link(_compared(fast, rival, NONE), rival),
        claims.fewest_bytes_win(_compared(slow, fewest, second), fewest, second),
        claims.break_even_predicts(pays, below),
    ]


def _compared(timed: Mapping[str, Timed], first: str, second: str) -> Paired:
    """Steps of two codecs on one link, which took turns."""
    return by_rounds(timed[first].rounds_ms, timed[second].rounds_ms)


def _accuracy(measured: CompressionMeasurements) -> list[Finding]:
    found = measured.accuracies
    return [
        claims.accuracy_is_kept(found[NONE], {codec: found[codec] for codec in COMPRESSING}),
        claims.feedback_is_needed(found["sparse"], found["sparse-forgetful"], SPARSE_RATIO),
    ]


def _choice(measured: CompressionMeasurements) -> list[Finding]:
    chosen = {link: choice.codec for link, choice in measured.chosen.items()}
    # Both from the rotation, where the codecs took turns in one state of the machine.
    its_steps = {link: measured.timed[link][codec].rounds_ms for link, codec in chosen.items()}
    best = {link: measured.timed[link][measured.fastest(link)].rounds_ms for link in LINKS}
    return [
        claims.auto_adapts(chosen, FASTEST, SLOWEST, NONE),
        claims.auto_is_near_the_best(its_steps, best),
    ]
