from shoal_labs.optimise.straggler.plan import CONDITIONS, LEARNING, WAYS, plan_for


def test_one_worker_is_slow_in_every_run_of_the_condition_and_none_in_the_base():
    plan = plan_for(workers=2, quick=True, first_seed=0)
    runs = plan.runs()
    assert len(runs) == 1 + len(CONDITIONS) * len(WAYS) + len(LEARNING) * (plan.size.repeats - 1)
    for (condition, _), name in plan.named().items():
        slowdowns = [each.slowdown for each in runs[name].launch.bottleneck]
        assert slowdowns == {"even": [3, 3, 3], "always": [3, 3, 9], "passing": [1, 1, 1]}[condition]
    assert all(each.delay_s == (0, 0.03) for each in runs["straggler-passing-ssp"].launch.bottleneck)


def test_only_the_balanced_run_balances():
    runs = plan_for(workers=4, quick=False, first_seed=0).runs()
    assert {name for name, run in runs.items() if run.train.balance} == {
        "straggler-always-balanced",
        "straggler-passing-balanced",
    }
    assert all(run.launch.workers == 4 for run in runs.values())
