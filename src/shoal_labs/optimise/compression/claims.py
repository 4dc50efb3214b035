"""What the lab claims: each claim a function of numbers alone, so that a test can feed it either outcome."""

from collections.abc import Mapping, Sequence, Set

from shoal.report.findings import Finding, Verdict
from shoal.report.paired import Paired, by_rounds, by_seeds, first_higher, first_lower
from shoal.words import Phrase
from shoal_labs.numbers import no_worse, whether

POINT = 0.01
"""The accuracy that a codec may cost."""
NEAR = 1.05
"""A choice whose step takes at most this many times the best one's is near it."""


# ── bytes ──


def bytes_as_declared(sent: Mapping[str, int], declared: Mapping[str, int]) -> Finding:
    """On the wire, every codec sends the bytes that follow from what it declares."""
    right = sum(sent[codec] == declared[codec] for codec in declared)
    fewest = min(sent, key=lambda codec: sent[codec])
    numbers = {
        "right": right,
        "codecs": len(declared),
        "fewest": fewest,
        "ratio": max(sent.values()) / sent[fewest],
    }
    return Finding("bytes_as_declared", numbers, whether(right == len(declared)))


# ── time ──


def pays_on_a_slow_link(steps: Paired, codec: str) -> Finding:
    """On the slowest link, compression makes a step shorter. `steps`: uncompressed, and with the fastest codec."""
    numbers = {"dense": steps.first, "best": steps.second, "codec": codec, "ratio": steps.ratio}
    return Finding("pays_on_a_slow_link", numbers, first_higher(steps), steps.pairs)


def not_on_a_fast_link(steps: Paired, codec: str) -> Finding:
    """On loopback, no codec makes a step shorter. `steps`: with the fastest codec, and uncompressed."""
    numbers = {"dense": steps.second, "best": steps.first, "codec": codec, "ratio": steps.ratio}
    return Finding("not_on_a_fast_link", numbers, first_higher(steps), steps.pairs)


def fewest_bytes_win(steps: Paired, codec: str, rival: str) -> Finding:
    """On the slowest link, the codec with the fewest bytes (first) has the shortest step of all."""
    numbers = {"fewest": steps.first, "other": steps.second, "codec": codec, "rival": rival}
    return Finding("fewest_bytes_win", numbers, first_lower(steps), steps.pairs)


def break_even_predicts(
    pays: Mapping[tuple[str, str], Verdict], below: Mapping[tuple[str, str], bool]
) -> Finding:
    """A codec makes a step shorter on exactly the links below its break-even rate, by link and codec."""
    decided = {pair: verdict for pair, verdict in pays.items() if verdict != "undecided"}
    right = sum((verdict == "holds") == below[pair] for pair, verdict in decided.items())
    numbers = {"right": right, "decided": len(decided), "pairs": len(pays)}
    verdict: Verdict = whether(right == len(decided)) if decided else "undecided"
    return Finding("break_even_predicts", numbers, verdict, timed=True)


# ── accuracy ──


def accuracy_is_kept(dense: Sequence[float], codecs: Mapping[str, Sequence[float]]) -> Finding:
    """No codec costs more than a point of accuracy; losses are formed seed by seed."""
    pairs = {codec: by_seeds(dense, its) for codec, its in codecs.items()}
    worst = max(pairs, key=lambda codec: pairs[codec].difference.value)
    verdicts: set[Verdict] = {no_worse(pair, POINT) for pair in pairs.values()}
    numbers = {
        "dense": pairs[worst].first.scaled(100),
        "worst": worst,
        "loss": 100 * pairs[worst].difference.value,
        "codecs": len(codecs),
        "point": 100 * POINT,
    }
    return Finding("accuracy_is_kept", numbers, _all_hold(verdicts))


def feedback_is_needed(remembers: Sequence[float], forgets: Sequence[float], ratio: float) -> Finding:
    """With few elements sent, feedback ends with a higher accuracy than none."""
    gain = by_seeds(remembers, forgets)
    numbers = {
        "remembers": gain.first.scaled(100),
        "forgets": gain.second.scaled(100),
        "lead": 100 * gain.difference.value,
        "percent": 100 * ratio,
    }
    return Finding("feedback_is_needed", numbers, first_higher(gain), gain.pairs)


# ── the choice ──


def auto_adapts(chosen: Mapping[str, str], fast: str, slow: str, none: str) -> Finding:
    """On loopback `auto` chooses no compression, on the slowest link a codec."""
    numbers = {
        "choices": tuple(
            Phrase("each.choice", {"link": Phrase(f"link.{link}"), "codec": _codec(codec, none)})
            for link, codec in chosen.items()
        )
    }
    return Finding("auto_adapts", numbers, whether(chosen[fast] == none != chosen[slow]), timed=True)


def auto_is_near_the_best(
    chosen: Mapping[str, Sequence[float]], best: Mapping[str, Sequence[float]]
) -> Finding:
    """On every link, a step with the codec that `auto` chose takes at most 5 % longer than with the best codec.

    Milliseconds of both, by link and round.
    """
    steps = {link: by_rounds(chosen[link], best[link]) for link in chosen}
    verdicts: set[Verdict] = {
        first_lower(by_rounds(chosen[link], [NEAR * each for each in best[link]])) for link in chosen
    }
    worst = max(steps, key=lambda link: steps[link].ratio)
    numbers = {
        "ratios": tuple(
            Phrase("each.ratio", {"link": Phrase(f"link.{link}"), "ratio": each.ratio})
            for link, each in steps.items()
        ),
        "worst": Phrase(f"link.{worst}"),
        "chosen": steps[worst].first,
        "best": steps[worst].second,
        "percent": 100 * (NEAR - 1),
    }
    return Finding("auto_is_near_the_best", numbers, _all_hold(verdicts), timed=True)


def _all_hold(verdicts: Set[Verdict]) -> Verdict:
    """Of several claims at once."""
    return "fails" if "fails" in verdicts else "undecided" if "undecided" in verdicts else "holds"


def _codec(codec: str, none: str) -> str | Phrase:
    return Phrase("codec.none") if codec == none else codec
