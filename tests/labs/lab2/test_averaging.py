from dataclasses import replace

import pytest
import torch

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.config.sections.values import Custom
from shoal.strategies.exchange.contract import examine
from shoal.strategies.exchange.exam import subject_of
from shoal_labs.lab2.averaging import ALL, BRANCHES, CALLS, COURSE, MESSAGES, calls_of, exchange_of


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_branch_keeps_the_contract_of_exchanges(branch):
    subject = replace(subject_of(Custom(name=exchange_of(branch)), workers=3), sizes=[3])
    problems = {verdict.name: verdict.problem for verdict in examine(subject)}
    assert set(problems.values()) == {""}, problems


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_branch_calls_what_it_says_and_nothing_else(branch):
    def work(group):
        watched = traced(group)
        BRANCHES[branch](watched, torch.ones(7))
        return set(watched.totals)

    for called in run_threads(3, work):
        assert called == set(CALLS[branch]) == calls_of(branch)


def test_a_branch_that_lies_would_be_seen():
    def work(group):
        watched = traced(group)
        BRANCHES["all_gather"](watched, torch.ones(7))
        return set(watched.totals)

    assert all(called != calls_of("all_reduce") for called in run_threads(2, work))


def test_both_kinds_of_branches_are_compared():
    assert ALL == COURSE + MESSAGES
    assert set(COURSE) == set(CALLS)
    assert calls_of("by:ring") == {"send", "recv"}
