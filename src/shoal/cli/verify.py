"""`shoal verify`: find the first difference between a distributed run of a program and one machine."""

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.config.sections.values import Count, Seconds
from shoal.errors import ConfigError, ShoalError

if TYPE_CHECKING:
    from shoal.verify.finding import Finding, Outcome


@dataclass(frozen=True, kw_only=True)
class VerifyFlags(Flags):
    """What comes before the program."""

    workers: Count = 2
    """Number of workers."""
    steps: Count = 20
    """Steps to compare; the program ends after them. Samples are compared over the passes that these steps make."""
    comparable: bool = False
    """Turn dropout off and let BatchNorm use its running statistics, in both runs."""
    timeout: Seconds | None = None
    """Seconds after which a worker that makes no progress, or has not joined, counts as lost (default 1800)."""
    json: bool = False
    """Print the outcome as JSON."""


def run(given: Given[VerifyFlags]) -> int:
    """Find the first difference between a distributed run of your program and one machine, and its likely cause.

    PROGRAM is a Python file that trains with torch (DDP, collectives, or ours). It runs unchanged on the workers, and
    batches, outputs, gradients before and after the exchange, optimizer, parameters and buffers are recorded. Then it
    runs once more as a world of one on the workers' joined batches, and every step is compared.

    Without a program, a strategy is compared with `single` on the same batches, on threads, with the settings of `shoal
    train`:

        shoal verify --strategy zero --workers 4 --data synthetic

    Exit code 0: equal within rounding. 1: a difference. 2: it could not be compared. A program that fails with another
    code than 1 gives its own.
    """
    if given.words and given.settings:
        hint = "Flags of the program stand after its name. Without a program, a strategy is compared."
        raise ConfigError(
            f"a program has settings of its own: {given.settings[0]} is one of `shoal train`", hint
        )
    outcome = _of_program(given) if given.words else _of_strategy(given)
    text.show(json.dumps(asdict(outcome)) if given.flags.json else shown(outcome))
    if outcome.finding:
        return 1 if outcome.finding.is_comparable else 2
    return 0 if outcome.steps else 2


def _of_program(given: Given[VerifyFlags]) -> "Outcome":
    from shoal.launch import programs
    from shoal.verify.recorder import ENOUGH
    from shoal.verify.worker import outcome_in

    (program, *arguments), flags = given.words, given.flags
    with tempfile.TemporaryDirectory(prefix="shoal-verify-") as folder:
        common = {"folder": folder, "comparable": flags.comparable}
        records = {**common, "most": flags.steps}
        try:
            programs.by_processes(program, arguments, flags.workers, timeout_s=flags.timeout, verify=records)
        except ShoalError as error:
            if not any(Path(folder).glob(f"{ENOUGH}*")):
                error.exit_code = max(2, error.exit_code)  # 1 is a difference
                raise
            why = f"some workers made {flags.steps} updates, after which verify ends a program, and others made fewer"
            hint = "If one worker updates for all, as in `dp`, --steps above the program's own lets it end by itself."
            raise ShoalError(why, f"{hint} The error that followed: {error.message}") from error
        alone = {**common, "reference": flags.workers}
        try:
            programs.by_processes(program, arguments, 1, timeout_s=flags.timeout, verify=alone)
        except ShoalError as error:
            why = "the program fails in a world of one, which is the reference"
            raise ShoalError(
                why, f"Let it run with `--workers 1`, too. Its error: {error.message}"
            ) from error
        return outcome_in(Path(folder))


def _of_strategy(given: Given[VerifyFlags]) -> "Outcome":
    from shoal.compare.variants import over
    from shoal.config.read import from_tree, merge, read_flags
    from shoal.verify.strategy import compare_strategy

    flags = given.flags
    with tempfile.TemporaryDirectory(prefix="shoal-verify-") as folder:
        ours = read_flags([f"--steps={flags.steps}", f"--runs-dir={folder}"])
        asked = merge(read_flags(given.settings), ours)
        several = merge(asked, read_flags([f"--workers={flags.workers}", "--launcher=threads"]))
        return compare_strategy(from_tree(several), from_tree(over(asked, read_flags(["--strategy=single"]))))


def shown(outcome: "Outcome") -> str:
    """The outcome in a few lines."""
    if outcome.finding:
        return "\n".join([*_of(outcome.finding), *_also(outcome)])
    if not outcome.steps:
        return "Nothing was compared: no step was seen. A step ends with `optimizer.step()` of an optimizer of torch's."
    what = f"{outcome.steps} steps of {outcome.workers} workers equal one machine within rounding"
    return "\n".join([f"{text.bold('equal')}  {what}", *_also(outcome)])


def _of(finding: "Finding") -> list[str]:
    who = "all ranks" if finding.rank is None else f"rank {finding.rank}"
    title = "different" if finding.is_comparable else "not comparable"
    lines = [f"{text.bold(title)}  step {finding.step} · {finding.phase} · {who} · {finding.tensor}", ""]
    lines.append(text.paragraph(finding.cause[0].upper() + finding.cause[1:] + "."))
    lines += [text.paragraph(f"  {sentence}") for sentence in finding.evidence]
    if finding.tolerance:
        lines.append(
            f"  Largest difference {finding.size:.1e} of the tensor; rounding explains {finding.tolerance:.1e}."
        )
    return lines


def _also(outcome: "Outcome") -> list[str]:
    return [f"  {note}" for note in outcome.notes]


COMMAND = Command(
    "verify",
    run,
    VerifyFlags,
    words="[PROGRAM] [ARGUMENT …]",
    settings=("*",),
    stop_at_word=True,
)
