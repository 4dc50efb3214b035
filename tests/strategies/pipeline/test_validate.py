"""Every schedule is proved on its data, and a wrong one is refused with the action named."""

from dataclasses import replace

import pytest

from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedule import Row, Schedule, parse_row
from shoal.strategies.pipeline.schedules import SCHEDULES, build, with_weights_once
from shoal.strategies.pipeline.validate import validate

SIZES = [(stages, microbatches) for stages in range(1, 9) for microbatches in (*range(1, 10), 12, 16)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_valid_for_all_sizes(name):
    for stages, microbatches in SIZES:
        validate(build(name, stages, microbatches))


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "async"])
def test_every_schedule_is_valid_with_weight_gradients_once(name):
    for stages, microbatches in SIZES[::3]:
        validate(with_weights_once(build(name, stages, microbatches)))


def refusal(rows: list[str], microbatches: int, peak: tuple[int, ...] | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        validate(
            Schedule("mine", microbatches, tuple(map(parse_row, rows)), peak or (microbatches,) * len(rows))
        )
    return refused.value.message


RIGHT = [
    "F0 sA0 F1 sA1 rG0 B0 rG1 B1",
    "rA0 F0 rA1 B0 sG0 F1 B1 sG1",
]


def test_the_rows_that_the_faults_are_planted_in_are_right():
    validate(Schedule("mine", 2, tuple(map(parse_row, RIGHT)), (2, 1)))


@pytest.mark.parametrize(
    ("stage", "right", "wrong", "sentence"),
    [
        (0, "F0 sA0 F1 sA1", "F1 sA1 F0 sA0", "stage 0, action 2 (F0): comes after F1, but micro-batches go"),
        (1, "F1 B1", "B1 F1", "stage 1, action 5 (B1): comes before F1, action 6"),
        (1, "rA1 ", "", "stage 1, action 4 (F1): rA1 is missing"),
        (0, "rG1 ", "", "stage 0, action 6 (B1): rG1 is missing"),
        (0, " sA1", "", "stage 0, action 2 (F1): sA1 is missing"),
        (1, "B1 sG1", "B1 B0 sG1", "stage 1, action 7 (B0): is action 3 already"),
        (1, "B1 sG1", "B1 I1 W1 sG1", "stage 1, action 7 (I1): the backward of this micro-batch is computed twice"),
        (1, "F1 B1 sG1", "F1", "stage 1, action 5 (F1): its backward, B1 or I1, is missing"),
        (1, "B1", "I1", "stage 1, action 6 (I1): its weight gradient, W1, is missing"),
        (1, "B1 sG1", "W1 I1 sG1", "stage 1, action 6 (W1): comes before I1, action 7"),
        (1, "B1 sG1", "B1 W1 sG1", "stage 1, action 7 (W1): B1, action 6, computes the weight gradient already"),
        (1, "B1 sG1", "I1 W1 sG1 W*", "stage 1, action 9 (W*): B0, action 3, computes the weight gradient already"),
        (1, "F1 B1", "B1", "stage 1: F1 is missing"),
        (1, "sG1", "sG1 F2", "stage 1, action 8 (F2): the micro-batches are 0 to 1"),
        (1, "sG1", "sG1 F*", "stage 1, action 8 (F*): only W can handle all micro-batches at once"),
        (0, "F0 sA0", "rA0 F0 sA0", "stage 0, action 0 (rA0): stage 0 has no previous stage"),
        (1, "sG1", "sG1 sA1", "stage 1, action 8 (sA1): stage 1 has no next stage"),
        (0, "F0 sA0", "sA0 F0", "stage 0, action 0 (sA0): is sent before F0, action 1, has computed it"),
        (0, "rG1 B1", "B1 rG1", "stage 0, action 6 (B1): its input arrives later, with rG1, action 7"),
        (0, "sA0 F1 sA1", "F1 sA1 sA0", "stage 0, action 2 (sA1): is out of order: stage 1, action 0 (rA0) expects"),
        (1, "rA1 B0 sG0 F1", "B0 sG0 rA1 F1", "stage 0, action 3 (sA1): deadlock with stage 1, action 3 (sG0)"),
        (1, "F0 rA1 B0 sG0 F1", "F0 rA1 F1 B0 sG0", "stage 1, action 3 (F1): holds 2 live activations at its peak, 1"),
        (1, "B1 sG1", "B1 U1 sG1", "stage 0, action 7 (B1): U0 must come first: gradients would add up"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_refused_by_name(stage, right, wrong, sentence):
    rows = [*RIGHT]
    assert rows[stage].count(right) == 1
    rows[stage] = rows[stage].replace(right, wrong)
    assert refusal(rows, 2, (2, 1)).startswith(sentence)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("F0 B0 F1 U0 B1 U1", None),
        ("F0 B0 F1 B1 U0 U1", "stage 0, action 3 (B1): U0 must come first: gradients would add up"),
        ("F0 B0 U0 F1 B1", "stage 0, action 4 (B1): its update, U1, is missing"),
        (
            "F0 U0 B0 F1 B1 U1",
            "stage 0, action 1 (U0): does not follow the weight gradient of its micro-batch",
        ),
        ("F0 B0 U1 F1 B1", "stage 0, action 2 (U1): does not follow the weight gradient of its micro-batch"),
        ("F0 I0 F1 I1 W0 W*", "stage 0, action 5 (W*): W0, action 4, computes a weight gradient already"),
    ],
)
def test_updates_follow_each_backward(row, sentence):
    if sentence is None:
        validate(Schedule("mine", 2, (parse_row(row),), (1,)))
    else:
        assert refusal([row], 2, (1,)) == sentence


def changed(schedule: Schedule, stage: int, row: Row) -> Schedule:
    return replace(schedule, rows=(*schedule.rows[:stage], row, *schedule.rows[stage + 1 :]))


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_action_can_be_left_out_or_repeated(name):
    schedule = build(name, 3, 3)
    for stage, row in enumerate(schedule.rows):
        for position, action in enumerate(row):
            with pytest.raises(ConfigError, match=rf"stage {stage}\b.*\b{action}\b|stage {stage}, action"):
                validate(changed(schedule, stage, row[:position] + row[position + 1 :]))
            with pytest.raises(
                ConfigError, match=rf"stage {stage}, action {position + 1} \({action}\): is action"
            ):
                validate(changed(schedule, stage, row[: position + 1] + row[position:]))


def test_a_declared_peak_is_exact_for_every_stage():
    schedule = build("1f1b", 3, 4)
    with pytest.raises(
        ConfigError, match="stage 1, action .* holds 2 live activations at its peak, 3 declared"
    ):
        validate(replace(schedule, peak_live=(3, 3, 1)))
    with pytest.raises(ConfigError, match="declares peak_live for 2 of 3 stages"):
        validate(replace(schedule, peak_live=(3, 2)))


def test_no_stage_is_no_schedule():
    assert "at least 1 stage" in refusal([], 1)
