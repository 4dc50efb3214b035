"""The techniques for less memory as a table: bytes by formula, bytes measured, and the time of a step."""

from collections.abc import Sequence

from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.memory.measure import by_formula
from shoal.memory.techniques import TECHNIQUES, MemoryVariant, single_variants
from shoal.memory.trial import Trial, try_each
from shoal.parallel.buckets.plan import MIB


def technique_rows(config: RunConfig, is_measured: bool = True) -> list[dict[str, object]]:
    """The run as it is, then with each technique: bytes by formula and measured, and the time of a step."""
    variants = [MemoryVariant(config), *single_variants(config)]
    tried: Sequence[Trial | None] = (
        try_each([each.config for each in variants]) if is_measured else [None] * len(variants)
    )
    plain = tried[0]
    rows: list[dict[str, object]] = []
    for variant, trial in zip(variants, tried, strict=True):
        name = variant.techniques[0] if variant.techniques else "plain"
        technique = TECHNIQUES.get(name)
        row: dict[str, object] = {
            "technique": name,
            "flags": variant.flags,
            "takes_away": technique.takes_away if technique else "",
            "leaves": technique.formula if technique else "",
            "is_exact": variant.is_exact,
            "formula_bytes": formula_bytes(variant.config),
        }
        if trial is not None and plain is not None:
            row |= {"measured_bytes": trial.peak, "time": round(trial.seconds / plain.seconds, 3)}
        rows.append(row)
    return rows


def formula_bytes(config: RunConfig) -> int | None:
    """Bytes of a worker by formula, for the samples that go through the model at once; None without a formula."""
    try:
        return by_formula(config, samples_at_once(config)).formula
    except ConfigError:
        return None


def formula_parts(config: RunConfig) -> dict[str, int | None] | None:
    """Bytes of each component of a worker by formula: 0 where it is elsewhere, None where they are not known."""
    try:
        found = by_formula(config, samples_at_once(config)).components
    except ConfigError:
        return None
    parts: dict[str, int | None] = {}
    for each in found:
        mine, before = each.num_bytes if each.counts else 0, parts.get(each.name, 0)
        parts[each.name] = None if mine is None or before is None else before + mine
    return parts


def samples_at_once(config: RunConfig) -> int:
    """Samples of a worker that go through the model at once."""
    batch = config.train.batch_size
    share = -(-batch // config.axes.get("data", 1)) if isinstance(batch, int) else config.train.micro_batch
    return min(share, config.train.micro_batch)


def as_text(config: RunConfig, rows: Sequence[dict[str, object]]) -> str:
    """The rows as a table of 80 columns."""
    lines = [f"Techniques, with {samples_at_once(config)} samples at once", ""]
    header = f"{'':<28}{'takes away':<17}{'MiB':>9}"
    header += f"{'measured':>11}{'time':>9}" if any("time" in row for row in rows) else ""
    lines += [header, "-" * len(header)]
    for row in rows:
        label = str(row["flags"] or row["technique"]) + (" *" if not row["is_exact"] else "")
        time = f"{row['time']:.2f} ×" if "time" in row else ""
        measured = _mib(row["measured_bytes"]) if "measured_bytes" in row else ""
        lines.append(
            f"{label:<28}{row['takes_away']!s:<17}{_mib(row['formula_bytes']):>9}{measured:>11}{time:>9}".rstrip()
        )
    if any(not row["is_exact"] for row in rows):
        lines += ["", "* computes something else: see docs/memory.md"]
    return "\n".join(lines)


def _mib(num_bytes: object) -> str:
    return f"{num_bytes / MIB:,.1f}" if isinstance(num_bytes, int) else "–"
