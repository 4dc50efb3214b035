"""`shoal check`: run our contract tests on the user's own code."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from shoal.cli import text
from shoal.cli.command import Command, CommandGroup, Given
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast, AtMost
from shoal.config.sections.values import Seconds
from shoal.printable import counted

if TYPE_CHECKING:
    from shoal.config.sections.exchange import ExchangeConfig
    from shoal.strategies.exchange.exam import Subject, Verdict


@dataclass(frozen=True)
class CheckFlags(Flags):
    """What the exchange claims, and the size of the tests."""

    workers: Annotated[int, AtLeast(1), AtMost(32)] = 4
    """Largest number of workers; they are threads."""
    rule: bool = False
    """The result is not a sum but a rule such as a median (or declare it: function.is_rule = True)."""
    precision: Literal["float64", "float32", "float16", "bfloat16"] | None = None
    """Its sums are only as precise as this type (or declare it: function.precision = torch.bfloat16)."""
    limit: Seconds = 10.0
    """Time limit of one exchange, in seconds."""
    json: bool = False
    """Print the verdicts as JSON."""


def run(given: Given[CheckFlags]) -> int:
    """Run the contract of all exchanges on one of yours, a function of (group, bucket) that sums the workers' buckets.

    Options of the function are written --exchange.KEY VALUE, as for `shoal train`. Our own exchanges can be checked,
    too: all_reduce, by:ring, robust:median.

    Exit code 0: it keeps the contract. 1: it does not. 2: it could not be checked.
    """
    name = given.words[0]
    subject = _subject(given)

    from shoal.strategies.exchange.contract import examine

    title = f"{text.bold(name)}: {_in_words(subject)}"
    about = {"exchange": name, "workers": list(subject.sizes), "rule": subject.is_rule}
    code = _report(examine(subject), title, about, given.flags.json)
    _show_next(code, given, max(2, subject.sizes[0]), "ddp", "--exchange", name)
    return code


def _report(found: "Iterable[Verdict]", title: str, about: Mapping[str, object], as_json: bool) -> int:
    """Show the verdicts as they come, or all as one line of JSON; the exit code."""
    verdicts: list[Verdict] = []
    if not as_json:
        text.show(f"{title}\n")
    for verdict in found:
        verdicts.append(verdict)
        if not as_json:
            _show(verdict)
    failed = sum(bool(verdict.problem) for verdict in verdicts)
    if as_json:
        checks = [verdict._asdict() | {"passed": not verdict.problem} for verdict in verdicts]
        text.show(json.dumps({**about, "passed": not failed, "checks": checks}))
    else:
        text.show(
            f"\n{failed} of {len(verdicts)} checks failed" if failed else f"\nall {len(verdicts)} passed"
        )
    return 1 if failed else 0


@dataclass(frozen=True)
class StrategyFlags(Flags):
    """The size of the tests."""

    workers: Annotated[int, AtLeast(2), AtMost(12)] = 3
    """Largest number of workers; they are threads."""
    limit: Seconds = 20.0
    """Time limit of a few steps, in seconds."""
    json: bool = False
    """Print the verdicts as JSON."""


def run_strategy(given: Given[StrategyFlags]) -> int:
    """Run the contract of strategies on one of yours, a class that derives from shoal.ReplicaSync.

    Options of the class are written --strategy.KEY VALUE, as for `shoal train`. A strategy that declares is_exact =
    False need not equal one machine, but must keep one model to evaluate and resume with the same bits.

    Exit code 0: it keeps the contract. 1: it does not. 2: it could not be checked.
    """
    name, flags = given.words[0], given.flags

    from shoal.config.read import read

    config = read(None, ["--strategy", name, *given.settings]).sync

    from shoal.comm.alone import alone
    from shoal.strategies.replicas.contract import StrategySubject, examine_strategy, parts_for
    from shoal.strategies.replicas.user_sync import is_exact, make_user_sync

    make = make_user_sync(config)
    make(parts_for(alone(), "sgd"))  # what cannot be constructed cannot be checked
    subject = StrategySubject(make, range(1, flags.workers + 1), is_exact(config), flags.limit)
    what = "equals one machine" if subject.is_exact else "an algorithm of its own"
    title = f"{text.bold(name)}: {what}, with 1 to {flags.workers} workers"
    about = {"strategy": name, "workers": list(subject.sizes), "is_exact": subject.is_exact}
    code = _report(examine_strategy(subject), title, about, flags.json)
    _show_next(code, given, 2, name)
    return code


@dataclass(frozen=True)
class CodecFlags(Flags):
    """How to show it."""

    json: bool = False
    """Print the verdicts as JSON."""


def run_codec(given: Given[CodecFlags]) -> int:
    """Run the contract of codecs on one of yours, a class that derives from shoal.codecs.codec.Codec.

    It tests the declared bytes, what is decoded, the bias over many draws and the residual of 400 steps. Our own codecs
    can be checked, too: topk, int8.

    Exit code 0: it keeps the contract. 1: it does not. 2: it could not be checked.
    """
    from shoal.config.sections.compression import CompressedConfig

    name, flags = given.words[0], given.flags
    exchange = f"compressed:{name}"
    config = _exchange(exchange, given.settings)
    assert isinstance(config, CompressedConfig)

    from shoal.strategies.exchange.codec_contract import CodecSubject, examine_codec

    subject = CodecSubject(config)
    how = "with feedback" if subject.feedback else "without feedback"
    about = {"codec": name, "feedback": subject.feedback}
    code = _report(examine_codec(subject), f"{text.bold(name)}: {how}", about, flags.json)
    _show_next(code, given, 2, "ddp", "--exchange", exchange)
    return code


@dataclass(frozen=True)
class RuleFlags(Flags):
    """The size of the tests."""

    workers: Annotated[int, AtLeast(1), AtMost(32)] = 7
    """Largest number of workers; they are threads."""
    limit: Seconds = 10.0
    """Time limit of one exchange, in seconds."""
    json: bool = False
    """Print the verdicts as JSON."""


def run_rule(given: Given[RuleFlags]) -> int:
    """Run the contract of robust rules on one of yours, a function of (rows, bad): a row for each worker.

    It tests that no worker is preferred, that equal rows give that row, and how many attackers the rule stands. Our own
    rules can be checked, too: median, krum.

    Exit code 0: it keeps the contract. 1: it does not. 2: it could not be checked.
    """
    from shoal.config.sections.exchange import RobustConfig

    name, flags = given.words[0], given.flags
    exchange = f"robust:{name}"
    config = _exchange(exchange, given.settings)
    assert isinstance(config, RobustConfig)

    from shoal.strategies.exchange.exam import subject_of
    from shoal.strategies.exchange.rule_contract import examine_rule
    from shoal.strategies.exchange.rules import check_bound, rule_of

    rule_of(config.rule)
    check_bound(config.rule, flags.workers, config.bad, more="Use --workers {}")
    subject = subject_of(config, flags.workers, limit_s=flags.limit)
    title = f"{text.bold(name)}: {_in_words(subject)}, of which {config.bad} may be bad"
    about = {"rule": name, "workers": list(subject.sizes), "bad": config.bad}
    code = _report(examine_rule(subject), title, about, flags.json)
    _show_next(code, given, max(2, subject.sizes[0]), "ddp", "--exchange", exchange)
    return code


@dataclass(frozen=True)
class ScheduleFlags(Flags):
    """The largest size that is tested, which is also drawn."""

    stages: Annotated[int, AtLeast(1), AtMost(16)] = 4
    """Number of stages."""
    microbatches: Annotated[int, AtLeast(1), AtMost(32)] = 8
    """Number of micro-batches."""
    json: bool = False
    """Print the verdicts as JSON."""


def run_schedule(given: Given[ScheduleFlags]) -> int:
    """Run our validator on a pipeline schedule of yours, a function of (stages, micro-batches), and draw it.

    Every size up to --stages and --microbatches is tested. Smaller sizes that the function refuses with a
    shoal.errors.ConfigError are left out. Our own schedules can be checked, too: 1f1b.

    Exit code 0: it keeps the contract. 1: it does not. 2: it could not be checked.
    """
    name, flags = given.words[0], given.flags

    from shoal.explain.pipeline import as_grid, explain_schedule
    from shoal.strategies.pipeline.contract import ScheduleSubject, examine_schedule
    from shoal.strategies.pipeline.schedules import function_of

    function_of(name)  # what cannot be called cannot be checked
    subject = ScheduleSubject(name, flags.stages, flags.microbatches)
    size = f"up to {counted(flags.stages, 'stage')} and {counted(flags.microbatches, 'micro-batch', 'es')}"
    verdicts = list(examine_schedule(subject))
    about: dict[str, object] = {"schedule": name, "stages": flags.stages, "microbatches": flags.microbatches}
    is_valid = not any(verdict.problem for verdict in verdicts)
    explanation = explain_schedule(name, flags.stages, flags.microbatches) if is_valid else None
    if explanation is not None:
        line = explanation.timeline
        about |= {"bubble": line.bubble, "peak_live": list(explanation.schedule.peak_live)}
    code = _report(verdicts, f"{text.bold(name)}: {size}", about, flags.json)
    if explanation is not None and not flags.json:
        text.show(f"\n{as_grid(explanation, text.page_width())}")
        train = ["--mesh", "pipeline=2", "--pipeline.schedule", name]
        text.next_step("shoal", "train", "quickstart", *train)
    return code


def _show_next(code: int, given: "Given[Any]", workers: int, strategy: str, *more: str) -> None:
    """Train with what keeps the contract."""
    if code == 0 and not given.flags.json:
        train = ["shoal", "train", "quickstart", "--workers", str(workers), "--strategy", strategy]
        text.next_step(*train, *more, *given.settings)


def _subject(given: Given[CheckFlags]) -> "Subject":
    """What the contract is checked on; every error in the request is found here."""
    config = _exchange(given.words[0], given.settings)

    import torch

    from shoal.strategies.exchange.exam import subject_of

    flags = given.flags
    precision: torch.dtype | None = getattr(torch, flags.precision) if flags.precision else None
    return subject_of(config, flags.workers, flags.rule, precision, flags.limit)


def _exchange(name: str, settings: list[str]) -> "ExchangeConfig":
    from shoal.config.read import read

    return read(None, ["--strategy", "naive", "--exchange", name, *settings]).exchange


def _in_words(subject: "Subject") -> str:
    what = "a rule" if subject.is_rule else "a lossy sum" if subject.is_lossy else "a sum"
    precise = f" in {str(subject.precision).removeprefix('torch.')}" if subject.precision else ""
    fewest, most = subject.sizes[0], subject.sizes[-1]
    several = f"{fewest} to {most} workers" if fewest < most else counted(most, "worker")
    return f"{what}{precise}, with {several}"


def _show(verdict: "Verdict") -> None:
    mark = "FAIL" if verdict.problem else "ok"
    text.show(f"  {mark:4}  {text.bold(f'{verdict.name:18}')}  {verdict.sentence}")
    for line in (verdict.problem or verdict.found).splitlines():
        text.show(text.wrapped(line.strip(), 8))


COMMAND = CommandGroup(
    "check",
    "Run our contract tests on your own exchange, codec, rule, schedule or strategy.",
    {
        "exchange": Command(
            "check exchange", run, CheckFlags, "package.module:function", settings=("exchange",)
        ),
        "codec": Command(
            "check codec", run_codec, CodecFlags, "package.module:Class", settings=("exchange",)
        ),
        "rule": Command("check rule", run_rule, RuleFlags, "package.module:function", settings=("exchange",)),
        "schedule": Command("check schedule", run_schedule, ScheduleFlags, "package.module:function"),
        "strategy": Command(
            "check strategy", run_strategy, StrategyFlags, "package.module:Class", settings=("strategy",)
        ),
    },
    kind="contract",
)
