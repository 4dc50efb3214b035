"""Every number of the report, as tables for other programs."""

from shoal.report.plain_tables import Records
from shoal_labs.optimise.compression.measure import CompressionMeasurements
from shoal_labs.optimise.compression.plan import CODECS


def tables(measured: CompressionMeasurements) -> dict[str, Records]:
    """The tables by name."""
    return {
        "steps": [
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
        "codecs": [
            {
                "codec": codec,
                "declared (B)": measured.declared[codec],
                "sent by a worker, by formula (B)": measured.expected_bytes(codec),
                "encode and decode (ms)": measured.local_ms[codec],
                "break-even (bit/s)": measured.break_even[codec],
            }
            for codec in CODECS
        ],
        "accuracy": [
            {"exchange": name, "seed": seed, "test accuracy (1)": accuracy}
            for name, accuracies in measured.accuracies.items()
            for seed, accuracy in zip(measured.plan.seeds, accuracies, strict=True)
        ],
        "auto": [
            {
                "link": link,
                "candidate": codec,
                "chosen": codec == choice.codec,
                "encode and decode (ms)": choice.local_ms[codec],
                "predicted exchange (ms)": predicted,
                "measured link (bit/s)": choice.link_bits_per_s,
                "step after the choice (ms)": choice.step_ms.value,
            }
            for link, choice in measured.chosen.items()
            for codec, predicted in choice.predicted_ms.items()
        ],
    }
