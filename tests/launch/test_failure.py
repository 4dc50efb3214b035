"""How a failure reads: which rank, what, where, what to do, and the exit code that is kept."""

import signal

import pytest

from shoal.cli import text
from shoal.errors import ConfigError, DivergedError, MemberError
from shoal.launch.failure import failure_of, reported_failure, unreported_end


def caught(function, *arguments):
    try:
        function(*arguments)
    except BaseException as error:
        return failure_of(error)


def fail_with(error):
    raise error


def test_the_place_is_in_the_users_code_even_when_a_library_raised():
    import json

    failure = caught(json.loads, "{")
    assert failure.where.split(":")[0] == __file__
    assert "json/decoder.py" in failure.traceback


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DivergedError("no"), 2),
        (ValueError("no"), 1),
        (SystemExit(7), 7),
        (SystemExit("words"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_exit_code_is_the_one_it_would_have_had(error, code):
    assert caught(fail_with, error).exit_code == code


def test_an_error_of_ours_needs_no_traceback_and_another_exception_does():
    ours = reported_failure(1, 4, caught(fail_with, DivergedError("the loss is nan", "Try less.")))
    assert (ours.message, ours.hint, ours.traceback) == ("rank 1 of 4: the loss is nan", "Try less.", "")
    theirs = reported_failure(1, 4, caught(fail_with, KeyError("colour")))
    assert theirs.message == "rank 1 of 4 failed: KeyError: 'colour'"
    assert theirs.hint.startswith(f"at {__file__}:")
    assert "Traceback" in theirs.traceback


def test_a_refused_setting_can_be_told_from_other_errors():
    errors = [
        ConfigError("not with this model", "Use another."),
        DivergedError("the loss is nan"),
        KeyError("p"),
    ]
    shown = [reported_failure(0, 2, caught(fail_with, error)) for error in errors]
    assert [each.refusal for each in shown] == ["not with this model", "", ""]


def test_a_failure_that_blames_another_rank_is_shown_as_that_ranks():
    error = MemberError("rank 2 is stopped", "Continue it with: kill -CONT 7", rank=2, reason="stopped")
    shown = reported_failure(0, 3, caught(fail_with, error))
    assert shown.message == "rank 2 is stopped"
    assert "Seen by rank 0 of 3." in shown.hint
    assert "CONT" not in shown.hint  # the launcher has ended it: there is nothing to continue


@pytest.mark.parametrize(
    ("code", "message", "exit_code"),
    [
        (-signal.SIGKILL, "rank 1 of 2 was killed by SIGKILL", 137),
        (3, "rank 1 of 2 exited with code 3 before its work was done", 3),
        (0, "rank 1 of 2 exited with code 0 before its work was done", 1),
    ],
)
def test_an_end_without_a_word(code, message, exit_code):
    shown = unreported_end(1, 2, code, "")
    assert (shown.message, shown.exit_code) == (message, exit_code)


def test_last_words_are_the_last_lines_but_of_a_crash_the_first():
    output = "\n".join(f"line {number}" for number in range(100))
    assert "line 99" in unreported_end(1, 2, 3, output).hint
    assert "line 0\n" not in unreported_end(1, 2, 3, output).hint
    crash = f"noise\nFatal Python error: Segmentation fault\n  File user.py, line 3\n{output}"
    hint = unreported_end(1, 2, -signal.SIGSEGV, crash).hint
    assert "user.py, line 3" in hint
    assert "noise" not in hint
    assert "line 99" not in hint


def test_one_box_last_and_complete(capsys):
    shown = reported_failure(1, 2, caught(fail_with, ValueError("no such column: 颜色")), ["Resume with: …"])
    text.error(shown)
    traceback, box = capsys.readouterr().err.split("┌── error\n")
    assert "Traceback" in traceback
    assert box.splitlines()[0] == "│ rank 1 of 2 failed: ValueError: no such column: 颜色"
    assert box.splitlines()[2] == "│ Resume with: …"
    assert box.endswith("└──\n")


def test_the_output_of_a_worker_that_just_ended_is_shown_in_part():
    error = unreported_end(0, 2, 3, "begin" + "x" * 3_000_000)
    assert len(error.hint) < 20_000
    assert "begin" in error.hint
