"""Errors that a program can catch by their standard kind, wherever they come from."""

import time

import pytest

from shoal import errors
from shoal.comm.join import WorkerAddress, join
from shoal.comm.rendezvous.store import listen
from shoal.comm.threads.group import run_threads
from shoal.config.read import read
from shoal.launch import threads

KINDS = {
    errors.ConfigError: ValueError,
    errors.WrapperError: RuntimeError,
    errors.ArgumentError: TypeError,
    errors.DataError: ValueError,
    errors.NothingCountedError: ValueError,
    errors.CheckpointError: RuntimeError,
    errors.DivergedError: ArithmeticError,
    errors.AutogradError: RuntimeError,
    errors.WorkerError: RuntimeError,
    errors.CallbackError: RuntimeError,
    errors.GroupError: RuntimeError,
    errors.MemberError: RuntimeError,
    errors.MemberTimeoutError: TimeoutError,
    errors.MismatchError: RuntimeError,
    errors.JoinError: RuntimeError,
    errors.JoinTimeoutError: TimeoutError,
}


def test_every_error_is_a_standard_exception_and_drawn_in_the_tree():
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    assert {each for each in kinds if issubclass(each, errors.ShoalError)} == {errors.ShoalError, *KINDS}
    for kind, standard in KINDS.items():
        assert issubclass(kind, standard)
        assert issubclass(kind, errors.ShoalError)
        assert f"── {kind.__name__} " in errors.__doc__


def test_a_timeout_still_reads_as_one_sentence_and_its_fix():
    error = errors.JoinTimeoutError("rank 1 is missing", "Start it.")
    assert (str(error), error.hint, error.exit_code) == ("rank 1 is missing\n  Start it.", "Start it.", 2)
    stuck = errors.member_error("rank 1 is stuck", rank=1, reason="stuck")
    assert (str(stuck), stuck.rank, stuck.reason) == ("rank 1 is stuck", 1, "stuck")
    assert not isinstance(errors.member_error("rank 1 died", rank=1, reason="died"), TimeoutError)


def test_a_wrong_setting_is_a_value_error():
    with pytest.raises(ValueError, match="expected a number"):
        read(None, ["--lr", "fast"])


def test_a_member_without_progress_is_a_timeout_error():
    def work(group):
        if group.rank == 1:
            time.sleep(1)
        else:
            group.barrier().wait()

    with pytest.raises(TimeoutError, match="rank 1 has not reached barrier #1"):
        run_threads(2, work, limit_s=0.2)


def test_a_missing_worker_is_a_timeout_error():
    with listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
    with pytest.raises(TimeoutError, match="rank 1 is missing"):
        join(WorkerAddress(0, 2, "127.0.0.1", port), kind="gloo", timeout_s=0.3)


def test_a_failed_worker_is_a_runtime_error():
    def work(group):
        raise LookupError("no such row")

    with pytest.raises(RuntimeError, match="failed: LookupError: no such row"):
        threads.run(2, work)
