"""`shoal check`: our contract tests, on something of the user's own."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.cli import text
from shoal.cli.options import Options, no_more, split_options
from shoal.errors import ConfigError, unknown

if TYPE_CHECKING:
    from shoal.parallel.exchange.contract import Verdict
    from shoal.parallel.exchange.exam import Subject

USAGE = "shoal check exchange package.module:function [--workers 4] [--rule] [--precision bfloat16] [--json]"
HELP = f"""Usage: {USAGE}

Runs the contract that every exchange of ours keeps on one of yours: a function of (group, bucket) that makes each
worker's bucket the sum of all. The workers are threads, from 1 to --workers of them.

  --workers N        the most workers; 4 if it is left out
  --rule             it is no sum but a rule, such as a median (or declare it: function.is_rule = True)
  --precision KIND   its sums are as precise as this kind of number (or: function.precision = torch.bfloat16)
  --limit SECONDS    how long one exchange may take; 10 if it is left out
  --exchange.KEY V   an option of the function, as in `shoal train`
  --json             the verdicts as JSON

Exit code 0: it keeps the contract. 1: it does not. 2: there is nothing that could be checked.
Ours may be named too: all_reduce, by:ring, robust:median."""
MAX_WORKERS = 32
PRECISIONS = ("float64", "float32", "float16", "bfloat16")


def run(argv: Sequence[str]) -> int:
    """Find what is to be checked, and check it."""
    options, words = split_options(
        argv,
        switches=("--help", "-h", "--rule", "--json"),
        values=("--workers", "--precision", "--limit"),
    )
    if options.has("--help", "-h") or not words:
        text.page(HELP)
        return 0
    kind, *rest = words
    if kind not in KINDS:
        raise ConfigError(unknown("kind of thing to check", kind, KINDS), f"Usage: {USAGE}")
    if not rest or rest[0].startswith("-"):
        raise ConfigError(f"which {kind}?", f"Usage: {USAGE}")
    return KINDS[kind](options, rest[0], rest[1:])


def _exchange(options: Options, name: str, words: list[str]) -> int:
    subject = _subject(options, name, words)

    from shoal.parallel.exchange.contract import Verdict, examine

    as_json = options.has("--json")
    verdicts: list[Verdict] = []
    if not as_json:
        text.show(f"{text.bold(name)}: {_in_words(subject)}\n")
    for verdict in examine(subject):
        verdicts.append(verdict)
        if not as_json:
            _show(verdict)
    failed = sum(bool(verdict.problem) for verdict in verdicts)
    if as_json:
        checks = [verdict._asdict() | {"passed": not verdict.problem} for verdict in verdicts]
        about = {"exchange": name, "workers": list(subject.sizes), "rule": subject.is_rule}
        text.show(json.dumps(about | {"passed": not failed, "checks": checks}))
    else:
        text.show(
            f"\n{failed} of {len(verdicts)} checks failed" if failed else f"\nall {len(verdicts)} passed"
        )
    return 1 if failed else 0


KINDS = {"exchange": _exchange}


def _subject(options: Options, name: str, words: list[str]) -> "Subject":
    """What is to be examined; all that is wrong with the request is found here."""
    workers = options.value("--workers") or "4"
    if not workers.isdigit() or not 1 <= int(workers) <= MAX_WORKERS:
        raise ConfigError(f"--workers must be a whole number from 1 to {MAX_WORKERS}, not '{workers}'")
    limit = options.value("--limit") or "10"
    if not re.fullmatch(r"\d+(\.\d+)?", limit) or float(limit) == 0:
        raise ConfigError(f"--limit must be a number of seconds above 0, not '{limit}'")
    precision = options.value("--precision")
    if precision is not None and precision not in PRECISIONS:
        raise ConfigError(unknown("--precision", precision, PRECISIONS))
    no_more([word for word in words if word.startswith("-") and not word.startswith("--exchange.")], USAGE)

    from shoal.config.read import read

    config = read(None, ["--strategy", "naive", "--exchange", name, *words]).exchange

    import torch

    from shoal.parallel.exchange.exam import subject_of

    kind: torch.dtype | None = getattr(torch, precision) if precision else None
    return subject_of(config, int(workers), options.has("--rule"), kind, float(limit))


def _in_words(subject: "Subject") -> str:
    what = "a rule" if subject.is_rule else "a sum"
    precise = f" in {str(subject.precision).removeprefix('torch.')}" if subject.precision else ""
    fewest, most = subject.sizes[0], subject.sizes[-1]
    several = f"{fewest} to {most} workers" if fewest < most else f"{most} worker{'s' * (most > 1)}"
    return f"{what}{precise}, with {several}"


def _show(verdict: "Verdict") -> None:
    mark = "FAIL" if verdict.problem else "ok"
    text.show(f"  {mark:4}  {text.bold(f'{verdict.name:18}')}  {verdict.sentence}")
    for line in verdict.problem.splitlines():
        text.show(text.wrapped(line.strip(), 8))
