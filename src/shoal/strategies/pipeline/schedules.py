"""The schedules by name, and their published formulas.

Each schedule lists what a stage computes; `with_messages` adds the sends and receives.
"""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shoal.config.custom import calling, check_options, load, no_exit
from shoal.config.sections.values import Custom, is_own
from shoal.errors import ConfigError, ShoalError, unknown
from shoal.printable import counted
from shoal.strategies.pipeline.schedule import ALL, Action, B, F, I, Schedule, U, W
from shoal.strategies.pipeline.timing import StageTimes, with_messages


def sequential(stages: int, microbatches: int) -> Schedule:
    """One micro-batch at a time: forward through all stages, backward through all, then the next.

    This is the vertical model parallelism of textbooks: at any time one stage computes and all others wait.
    """
    row = tuple(Action(kind, k) for k in range(microbatches) for kind in (F, B))
    return Schedule("sequential", microbatches, with_messages([row] * stages), (1,) * stages)


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards: every activation of the step is held at once.

    Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism". The paper draws
    the backwards from the last micro-batch to the first; here they go from the first to the last, which takes as long
    and adds the gradients in the order in which one machine adds them.
    """
    row = tuple(Action(kind, k) for kind in (F, B) for k in range(microbatches))
    return Schedule("gpipe", microbatches, with_messages([row] * stages), (microbatches,) * stages)


def one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """One forward, one backward: GPipe's bubble with no more than p − s activations on stage s.

    Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (the
    PipeDream-Flush schedule).
    """
    rows = [tuple(_one_f_one_b_pairs(stage, stages, microbatches)) for stage in range(stages)]
    return Schedule("1f1b", microbatches, with_messages(rows), _in_flight(stages, microbatches))


def _one_f_one_b_pairs(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    warm_up = min(stages - stage - 1, microbatches)
    # Phase 1, warm-up: one forward for each stage below, until the first gradient can come back.
    for k in range(warm_up):
        yield Action(F, k)
    # Phase 2, steady state: one forward, one backward.
    for k in range(microbatches - warm_up):
        yield Action(F, warm_up + k)
        yield Action(B, k)
    # Phase 3, cool-down: the backwards of the micro-batches still in flight.
    for k in range(microbatches - warm_up, microbatches):
        yield Action(B, k)


def _in_flight(stages: int, microbatches: int) -> tuple[int, ...]:
    return tuple(min(stages - stage, microbatches) for stage in range(stages))


def zero_bubble(stages: int, microbatches: int) -> Schedule:
    """1F1B with backward in two halves: weight gradients fill the time in which a stage would wait for a gradient.

    ZB-H1 of Qi et al. 2023, "Zero Bubble Pipeline Parallelism". The previous stage needs I alone, so it gets its
    gradient earlier. Stage s keeps s weight gradients back, and computes them while the pipeline drains. No stage holds
    more activations than 1F1B's first one.
    """
    rows = [tuple(_zero_bubble_rounds(stage, stages, microbatches)) for stage in range(stages)]
    return Schedule("zero-bubble", microbatches, with_messages(rows), (min(stages, microbatches),) * stages)


def _zero_bubble_rounds(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    warm_up = min(stages - stage, microbatches)
    # Phase 1, warm-up: as many forwards as 1F1B has in flight.
    for k in range(warm_up):
        yield Action(F, k)
    # Phase 2, steady state and drain: I of this round, W of the round `stage` rounds ago, the next forward.
    for k in range(microbatches):
        yield Action(I, k)
        if k >= stage:
            yield Action(W, k - stage)
        if warm_up + k < microbatches:
            yield Action(F, warm_up + k)
    # Phase 3: the weight gradients that were kept back.
    for k in range(max(microbatches - stage, 0), microbatches):
        yield Action(W, k)


def asynchronous(stages: int, microbatches: int) -> Schedule:
    """1F1B, and an update after every backward: each micro-batch is a batch. Stages wait at the start and the end only.

    Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training" (weight stashing). A stage
    keeps the weights that each micro-batch in flight went forward with, and uses them for its backward: min(p − s, m)
    versions at most. Gradients are never added up over micro-batches: each is the mean over the micro-batch's samples,
    and a step makes m updates. With one micro-batch it equals one machine; with more, forwards on stage s use weights
    that lack the updates of the p − s − 1 micro-batches before them. PipeDream fills the pipeline once; here it drains
    at the end of a step, of m micro-batches, so that weights can be evaluated and saved.
    """
    rows = [
        tuple(
            action
            for each in _one_f_one_b_pairs(stage, stages, microbatches)
            for action in ((each, Action(U, each.microbatch)) if each.kind is B else (each,))
        )
        for stage in range(stages)
    ]
    return Schedule("async", microbatches, with_messages(rows), _in_flight(stages, microbatches))


SCHEDULES: dict[str, Callable[[int, int], Schedule]] = {
    "sequential": sequential,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zero-bubble": zero_bubble,
    "async": asynchronous,
}
"""The schedule of (stages, micro-batches), by name."""


def function_of(name: str) -> Callable[[int, int], Schedule]:
    """The function of a name: one of the table, or the user's own `package.module:function`."""
    if not is_own(name):
        if name not in SCHEDULES:
            raise ConfigError(unknown("schedule", name, SCHEDULES))
        return SCHEDULES[name]
    config = Custom(name=name)
    with calling("pipeline.schedule", config):
        function = load("pipeline.schedule", config)
        check_options("pipeline.schedule", config, function, given=2)
    return function


def build(name: str, stages: int, microbatches: int) -> Schedule:
    """The schedule of a name.

    >>> build("gpipe", stages=2, microbatches=3).peak_live
    (3, 3)
    """
    function = function_of(name)
    if stages < 1 or microbatches < 1:
        raise ConfigError(
            f"a pipeline needs at least 1 stage and 1 micro-batch, got {stages} and {microbatches}"
        )
    return _built_by(name, function, stages, microbatches) if is_own(name) else function(stages, microbatches)


def _built_by(
    name: str, function: Callable[[int, int], Schedule], stages: int, microbatches: int
) -> Schedule:
    """The schedule of a function of the user's own."""
    try:
        with no_exit(f"schedule {name}"):
            made = function(stages, microbatches)
    except ShoalError:
        raise
    except Exception as error:  # any exception: this runs the user's code
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"schedule {name} raised {type(error).__name__} for {counted(stages, 'stage')} and "
            f"{counted(microbatches, 'micro-batch', 'es')}: {error} (at {place.filename}:{place.lineno})"
        ) from error
    _check_own(name, made, stages, microbatches)
    return made


def _check_own(name: str, made: object, stages: int, microbatches: int) -> None:
    """Refuse what is no schedule of this size; `validate` checks its actions, as those of all schedules."""
    if not isinstance(made, Schedule):
        raise ConfigError(
            f"schedule {name} returned a value of type {type(made).__name__}, expected a Schedule",
            "Return Schedule(name, microbatches, with_messages(rows), peak_live).",
        )
    if (made.num_stages, made.num_microbatches) != (stages, microbatches):
        raise ConfigError(
            f"schedule {name} has {made.num_stages} stages and {made.num_microbatches} micro-batches, "
            f"expected {stages} and {microbatches}"
        )
    if not all(isinstance(action, Action) for row in made.rows for action in row):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"schedule {name} has rows of other values than Action",
            'A text becomes a row by parse_row("F0 B0 F1 B1").',
        )
    if made.updates_inside:
        raise ConfigError(
            f"schedule {name} updates the weights inside a step",
            "Of the schedules that do, only async is supported: remove the actions U.",
        )


def with_weights_once(schedule: Schedule) -> Schedule:
    """The schedule with all weight gradients in one action at the end: one matrix product instead of m.

    Every stage then holds what W needs of all m micro-batches: time for memory.

    >>> [str(action) for action in with_weights_once(one_f_one_b(1, 2)).rows[0]]
    ['F0', 'I0', 'F1', 'I1', 'W*']
    """
    if schedule.updates_inside:
        raise ConfigError(
            f"{schedule.name} updates after every micro-batch and cannot compute the weight gradients once per step",
            "Choose another schedule.",
        )
    rows = [
        (
            *(
                Action(I, action.microbatch) if action.kind is B else action
                for action in row
                if action.kind is not W
            ),
            Action(W, ALL),
        )
        for row in schedule.compute_rows
    ]
    peak = (schedule.num_microbatches,) * schedule.num_stages
    return Schedule(schedule.name, schedule.num_microbatches, with_messages(rows), peak)


@dataclass(frozen=True)
class ScheduleFormula:
    """The published formulas of one schedule, to hold against the timeline.

    p stages, m micro-batches, stage s from 0. All stages take the same times F, B = I + W, and messages take none.
    """

    bubble: str
    """The fraction of all stages' time in which they wait."""
    bubble_of: Callable[[int, int, StageTimes], float]
    """The same for p, m and the times."""
    peak_live: str
    """The largest number of micro-batches whose activations stage s holds at once."""
    peak_live_of: Callable[[int, int, int], int]
    """The same for p, m and s."""
    where: str = ""
    """What a letter in `bubble` stands for."""
    exact: str = ""
    """When the formula of the bubble is exact; always, if empty."""
    is_exact: Callable[[int, int], bool] = lambda p, m: True


def _zero_bubble_bubble(p: int, m: int, times: StageTimes) -> float:
    forward, half, weight = times.forward, times.backward_input, times.backward_weight
    bubble = (p - 1) * (forward + half - weight)
    return bubble / (m * (forward + half + weight) + bubble)


_ONE_F_ONE_B = ScheduleFormula(
    bubble="(p − 1) / (m + p − 1)",
    bubble_of=lambda p, m, times: (p - 1) / (m + p - 1),
    peak_live="min(p − s, m)",
    peak_live_of=lambda p, m, s: min(p - s, m),
)

FORMULAS: dict[str, ScheduleFormula] = {
    "sequential": ScheduleFormula(
        bubble="(p − 1) / p",
        bubble_of=lambda p, m, times: (p - 1) / p,
        peak_live="1",
        peak_live_of=lambda p, m, s: 1,
    ),
    "gpipe": replace(_ONE_F_ONE_B, peak_live="m", peak_live_of=lambda p, m, s: m),
    "1f1b": _ONE_F_ONE_B,
    "zero-bubble": ScheduleFormula(
        bubble="b / (m(F + I + W) + b)",
        where="b = (p − 1)(F + I − W)",
        bubble_of=_zero_bubble_bubble,
        peak_live="min(p, m)",
        peak_live_of=lambda p, m, s: min(p, m),
        exact="m ≥ p",
        is_exact=lambda p, m: m >= p,
    ),
    "async": _ONE_F_ONE_B,
}
"""The formulas by the schedule's name."""
