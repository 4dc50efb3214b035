"""The judge of missing members as a pure function: facts in, an error, a warning or nothing out."""

import pytest

from shoal.comm.liveness.judge import (
    BREAK_GRACE_S,
    DEATH_GRACE_S,
    LEAVE_GRACE_S,
    SLOW_AFTER_S,
    STOP_GRACE_S,
    WARN_AFTER_S,
    Facts,
    Judge,
    LastWords,
    SlowMemberWarning,
    cause_of,
    verdict,
)
from shoal.comm.liveness.limits import NO_PROGRESS_LIMIT_S, TRAIN_LIMIT_S, limit_of
from shoal.errors import ConfigError, GroupError, MemberError, MismatchError

LIMIT_S = 10.0
HERE = Facts(rank=3, label="all_reduce #7", waited_s=60.0, pid=4711, stack=lambda: "    in an endless loop")


def judged(**changes):
    return verdict(HERE._replace(**changes), LIMIT_S)


def test_a_member_that_makes_progress_is_waited_for():
    assert judged(silent_s=LIMIT_S) is None
    assert judged() is None


def test_a_death_is_named_with_its_process():
    error = judged(dead=True)
    assert (error.rank, error.reason) == (3, "died")
    assert error.message == "rank 3 died before all_reduce #7 (process 4711 has ended)"
    assert "store" in judged(dead=True, lost="; with it went the store").message


def test_a_stop_says_how_to_continue():
    error = judged(stopped_s=STOP_GRACE_S + 0.1, silent_s=60)
    assert (error.rank, error.reason) == (3, "stopped")
    assert "kill -CONT 4711" in error.hint


def test_a_member_that_is_stopped_and_continued_in_time_is_waited_for():
    """Neither stopped nor stuck: it was silent because it was stopped."""
    assert judged(stopped_s=STOP_GRACE_S - 0.1, silent_s=60) is None
    assert verdict(HERE._replace(stopped_s=0.6, silent_s=0.6), limit_s=0.5).reason == "stopped"


def test_a_member_that_waits_is_neither_slow_nor_stuck_but_the_one_that_it_waits_for(recwarn):
    judge = Judge(LIMIT_S, Clock())
    waiting, guilty = HERE._replace(rank=0, silent_s=LIMIT_S + 9, waits_for=1), HERE._replace(rank=1)
    assert judge.judge_all([waiting]) is None
    assert slow_ranks(recwarn) == []
    assert judge.judge_all([waiting, guilty._replace(stopped_s=LIMIT_S)]) is None
    error = judge.judge_all([waiting, guilty._replace(stopped_s=LIMIT_S + 0.1)])
    assert (error.rank, error.reason) == (1, "stopped")
    error = judge.judge_all([waiting, guilty._replace(silent_s=LIMIT_S + 0.1)])
    assert (error.rank, error.reason) == (1, "stuck")


def test_members_that_wait_for_each_other_are_stuck():
    """There is no other to blame, so each names the next in the circle."""
    error = judged(silent_s=12.34, waits_for=3)
    assert (error.rank, error.reason) == (3, "stuck")
    assert "it waits for others itself" in error.message
    circle = {0: 1, 1: 2, 2: 0}.get
    assert [cause_of(1, judged_by, circle) for judged_by in (0, 2, 3)] == [1, 1, 0]
    assert cause_of(4, 3, {4: 0, 0: 1, 1: 0}.get) in (0, 1), "they judge each other"


def test_silence_beyond_the_limit_is_stuck_and_shows_the_stack():
    error = judged(silent_s=12.34)
    assert (error.rank, error.reason) == (3, "stuck")
    assert error.message == (
        "rank 3 has not reached all_reduce #7: it is alive, but has made no progress for 12.3 s"
    )
    assert "in an endless loop" in error.hint
    for setting in ("SHOAL_TIMEOUT_S", "join(limit_s=…)", "--launch.timeout"):
        assert setting in error.hint


def test_silence_of_another_machine_names_the_network():
    error = judged(silent_s=12.0, host="far")
    assert "rank 3 on far has not reached all_reduce #7: silent for 12.0 s" in error.message
    assert "the network to far is down" in error.hint
    assert "SHOAL_TIMEOUT_S" in error.hint


@pytest.mark.parametrize(
    "excuse",
    [
        {"waited_s": 5.0},  # before that, all may have been busy
        {"starved_s": 8.0},  # it was ready to run and got no processor
        {"in_debugger": lambda: True},
        {"silent_s": -100.0},  # busy with work that it announced
    ],
)
def test_reasons_to_go_on_waiting(excuse):
    assert judged(**{"silent_s": 15.0, **excuse}) is None


@pytest.mark.parametrize(
    ("gone", "grace_s"),
    [
        ({"dead": True}, DEATH_GRACE_S),
        ({"dead": True, "connection_broken": True}, BREAK_GRACE_S),
        ({"last_words": LastWords.of(None, 3)}, LEAVE_GRACE_S),
        ({"last_words": LastWords.of(None, 3), "connection_broken": True}, BREAK_GRACE_S),
        ({"last_words": LastWords.of(ValueError("x"), 3)}, BREAK_GRACE_S),
    ],
)
def test_what_a_member_sent_last_gets_time_to_arrive(gone, grace_s):
    assert judged(gone_for_s=0.99 * grace_s, silent_s=60.0, **gone) is None
    assert judged(gone_for_s=grace_s, **gone).rank == 3


@pytest.mark.parametrize(
    ("error", "kind", "rank", "text"),
    [
        (None, MemberError, 3, "rank 3 finished earlier, before all_reduce #7"),
        (ValueError("no such column"), MemberError, 3, "rank 3 failed: ValueError: no such column"),
        (MemberError("rank 1 died", rank=1, reason="died"), MemberError, 1, "rank 1 died"),
        (MismatchError("rank 0: barrier()"), MismatchError, None, "rank 0: barrier()"),
    ],
)
def test_last_words_name_the_first_cause(error, kind, rank, text):
    found = judged(last_words=LastWords.of(error, 3))
    assert type(found) is kind
    assert found.message == text
    assert getattr(found, "rank", None) == rank


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def slow_ranks(caught):
    said = [str(each.message).split(" is slow") for each in caught if each.category is SlowMemberWarning]
    return [parts[0] for parts in said if len(parts) > 1]


def test_a_slow_member_is_warned_of_once(recwarn):
    judge = Judge(LIMIT_S, Clock())
    for waited_s in (SLOW_AFTER_S, SLOW_AFTER_S + 0.1, SLOW_AFTER_S + 5):
        assert judge.judge(HERE._replace(waited_s=waited_s, silent_s=1.0)) is None
    assert slow_ranks(recwarn) == ["rank 3"]
    assert f"others have waited {SLOW_AFTER_S + 0.1:.1f} s for it at all_reduce #7" in str(recwarn[0].message)


def test_members_that_are_slow_together_share_a_line_of_one_member(recwarn):
    clock = Clock()
    judge, silent_judge = Judge(LIMIT_S, clock), Judge(LIMIT_S, clock)
    members = [HERE._replace(rank=rank, waited_s=SLOW_AFTER_S + 0.1, silent_s=1.0) for rank in (3, 5, 7)]
    for each in (members[:2], members):
        judge.judge_all(each)
        silent_judge.judge_all(each, speaks=False)
    assert [str(each.message).partition(" slow")[0] for each in recwarn] == ["ranks 3, 5 are"]
    clock.now_s += 61
    judge.judge_all(members)
    assert slow_ranks(recwarn) == ["rank 7"]


@pytest.mark.parametrize("change", [{"has_arrived": True}, {"dead": True, "gone_for_s": 0.0}])
def test_no_warning_of_a_member_that_has_come_or_is_gone(recwarn, change):
    Judge(LIMIT_S, Clock()).judge(HERE._replace(**change))
    assert slow_ranks(recwarn) == []


def test_announced_work_is_not_slow_and_the_time_after_it_is(recwarn):
    clock = Clock()
    judge = Judge(LIMIT_S, clock)
    judge.judge(HERE._replace(silent_s=-1.0))
    clock.now_s += SLOW_AFTER_S
    judge.judge(HERE._replace(silent_s=1.0))
    assert slow_ranks(recwarn) == []
    clock.now_s += 0.1
    judge.judge(HERE._replace(silent_s=1.1))
    assert slow_ranks(recwarn) == ["rank 3"]


def test_a_member_that_is_alive_is_warned_of_with_its_stack_once_and_given_up_at_the_limit(recwarn):
    judge = Judge(NO_PROGRESS_LIMIT_S, Clock())
    for silent_s in (WARN_AFTER_S, WARN_AFTER_S + 0.1, 41.0, NO_PROGRESS_LIMIT_S):
        assert judge.judge(HERE._replace(waited_s=silent_s, silent_s=silent_s)) is None
    _, warned = [str(each.message) for each in recwarn if each.category is SlowMemberWarning]
    assert warned.startswith(
        "rank 3 has not reached all_reduce #7: it is alive, but has made no progress for 10.1 s. "
        "The others wait, at most 1800 s. Set another limit with SHOAL_TIMEOUT_S"
    )
    assert "in an endless loop" in warned
    late = HERE._replace(waited_s=1801.0, silent_s=1801.0)
    assert isinstance(judge.judge(late), TimeoutError)


@pytest.mark.parametrize("excuse", [{"silent_s": -1.0}, {"stopped_s": 3.0}, {"in_debugger": lambda: True}])
def test_a_known_reason_for_silence_needs_no_stack(recwarn, excuse):
    Judge(NO_PROGRESS_LIMIT_S, Clock()).judge(HERE._replace(**{"silent_s": 20.0, **excuse}))
    assert not any("It is here" in str(each.message) for each in recwarn)


def test_a_debugger_is_looked_for_only_after_seconds_of_silence(recwarn):
    """Not in every look: garbage is not collected while the frames of a thread are read."""
    looked: list[float] = []
    judge = Judge(NO_PROGRESS_LIMIT_S, Clock())
    for silent_s in (0.0, 1.0, WARN_AFTER_S, WARN_AFTER_S + 0.1):
        facts = HERE._replace(waited_s=60.0, silent_s=silent_s)
        judge.judge(facts._replace(in_debugger=lambda at=silent_s: bool(looked.append(at))))
    assert looked == [WARN_AFTER_S + 0.1]


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "1e300", "١٠"])
def test_a_limit_in_the_environment_must_be_a_number_of_seconds(text):
    with pytest.raises(ConfigError, match="SHOAL_TIMEOUT_S: expected seconds > 0"):
        limit_of(None, environment={"SHOAL_TIMEOUT_S": text})


def test_an_argument_wins_over_the_environment_and_that_over_the_default():
    assert limit_of(5.0, environment={"SHOAL_TIMEOUT_S": "90"}) == 5.0
    assert limit_of(None, TRAIN_LIMIT_S, {"SHOAL_TIMEOUT_S": "90"}) == 90.0
    assert limit_of(None, TRAIN_LIMIT_S, {}) == TRAIN_LIMIT_S


def test_a_wait_for_anyone_ends_with_a_death_or_when_none_will_come():
    judge = Judge(LIMIT_S, Clock())
    well, left = HERE._replace(rank=1), HERE._replace(rank=2, last_words=LastWords.of(None, 2))
    stuck, dead = HERE._replace(rank=4, silent_s=20.0), HERE._replace(rank=5, dead=True)
    assert judge.judge_any([well, left, stuck]) is None
    assert judge.judge_any([well, left, dead]).rank == 5
    assert judge.judge_any([left, stuck]).rank == 2
    mismatch = HERE._replace(last_words=LastWords.of(MismatchError("table"), 3))
    assert isinstance(judge.judge_any([well, mismatch]), GroupError)
    assert judge.judge_any([]) is None


def test_a_server_names_the_member_for_which_the_others_wait(recwarn):
    judge = Judge(LIMIT_S, Clock())
    here = HERE._replace(silent_s=LIMIT_S - 1)
    waits, works, busy = (
        here._replace(rank=0, **how) for how in ({"waits_for": 0}, {}, {"silent_s": -200.0})
    )
    other_server = here._replace(rank=2, silent_s=LIMIT_S + 1, waits_for=1)
    for guilty in (here._replace(rank=1, stopped_s=LIMIT_S + 1), here._replace(rank=1, silent_s=LIMIT_S + 1)):
        assert judge.judge_any([waits, guilty]).rank == 1
        assert judge.judge_any([waits, guilty, other_server]).rank == 1
        assert judge.judge_any([works, guilty]) is None, "a message of the other may come"
        assert judge.judge_any([busy, guilty]) is None
        assert judge.judge_any([waits._replace(waits_for=5), guilty]) is None, "it waits for another one"
    assert slow_ranks(recwarn) == []
    assert judge.judge_any([waits, here._replace(rank=1)]) is None
    assert slow_ranks(recwarn) == ["rank 1"]
    assert judge.judge_any([waits._replace(silent_s=LIMIT_S + 1)]).rank == 0, "each waits for the other"
