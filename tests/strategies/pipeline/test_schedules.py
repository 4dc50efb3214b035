"""Each schedule is the one of its paper, and its messages are listed in one order by both neighbours."""

import pytest

from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedule import Schedule
from shoal.strategies.pipeline.schedules import SCHEDULES, build, with_weights_once


def computes(schedule: Schedule) -> list[str]:
    return [" ".join(map(str, row)) for row in schedule.compute_rows]


EXPECTED = {
    "sequential": ["F0 B0 F1 B1 F2 B2 F3 B3"] * 3,
    "gpipe": ["F0 F1 F2 F3 B0 B1 B2 B3"] * 3,
    "1f1b": ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"],
    "zero-bubble": [
        "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",
        "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
        "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3",
    ],
    "async": [
        "F0 F1 F2 B0 U0 F3 B1 U1 B2 U2 B3 U3",
        "F0 F1 B0 U0 F2 B1 U1 F3 B2 U2 B3 U3",
        "F0 B0 U0 F1 B1 U1 F2 B2 U2 F3 B3 U3",
    ],
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_computes_in_the_order_of_its_paper(name):
    schedule = build(name, 3, 4)
    assert computes(schedule) == EXPECTED[name]
    assert schedule.name == name


def test_weight_gradients_once_per_step():
    schedule = with_weights_once(build("zero-bubble", 2, 3))
    assert computes(schedule) == ["F0 F1 I0 F2 I1 I2 W*", "F0 I0 F1 I1 F2 I2 W*"]
    assert schedule.peak_live == (3, 3)
    with pytest.raises(ConfigError, match="async updates after every micro-batch"):
        with_weights_once(build("async", 2, 3))


def messages_with(schedule: Schedule, stage: int, step: int) -> list[tuple[bool, int]]:
    """The messages with one neighbour, in order: whether it is an activation, and the micro-batch."""
    found = [a for a in schedule.rows[stage] if a.kind.is_message and a.kind.step_to_partner == step]
    return [("A" in action.kind.value, action.microbatch) for action in found]


@pytest.mark.parametrize("name", SCHEDULES)
def test_neighbours_list_their_messages_in_the_same_order(name):
    for stages, microbatches in [(2, 1), (3, 5), (4, 8), (8, 4)]:
        schedule = build(name, stages, microbatches)
        for stage in range(stages - 1):
            listed = messages_with(schedule, stage, +1)
            assert listed == messages_with(schedule, stage + 1, -1)
            assert len(listed) == 2 * microbatches


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_receive_is_posted_at_most_one_micro_batch_ahead(name):
    for row in build(name, 4, 8).rows:
        for channel, user in (("rA", "F"), ("rG", "BI")):
            ahead = 0
            for action in row:
                ahead += (action.kind.value == channel) - (action.kind.value in user)
                assert ahead <= 1


@pytest.mark.parametrize(("stages", "microbatches"), [(0, 1), (1, 0), (-1, 4)])
def test_a_pipeline_has_stages_and_microbatches(stages, microbatches):
    with pytest.raises(ConfigError, match="at least 1 stage and 1 micro-batch"):
        build("gpipe", stages, microbatches)


def test_an_unknown_schedule_is_guessed():
    with pytest.raises(ConfigError, match="did you mean '1f1b'"):
        build("1f1", 2, 2)
