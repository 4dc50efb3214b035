"""The checks of `shoal lab check 2`."""

from shoal_labs.check.fault import Check

GIVEN = ("train_step", "read_idx", "load_data", "synchronised")
AVERAGES = "shoal_labs.lab2.check.averages"
STEP = "shoal_labs.lab2.check.step"
COURSE = "shoal_labs.lab2.check.course"
CHECKS = (
    *(
        Check(
            (f"{kind}_average_gradients",),
            "dist_utils.py",
            f"{AVERAGES}:averaged",
            f"{AVERAGES}:average_faults",
            (f"{kind}_average_gradients",),
            nodes=3,
            meet=True,
            given=given,
            parts={"mean": (), "collective": ("another_collective",)},
        )
        for kind, given in {"allreduce": (), "allgather": (), "reduce": GIVEN}.items()
    ),
    Check(
        ("train_step",),
        "model.py",
        f"{STEP}:train_step_faults",
        meet=True,
        program=f"{COURSE}:train_step_faults",
        given=GIVEN,
        parts={
            "step": (
                *("average_times", "step_times", "step_before_average", "average_before_backward"),
                *("accumulates", "wrong_gradient", "average_cleared", "not_the_average", "wrong_loss"),
                *("never_exchanged", "other_starts", "branch", "no_gradient", "softmax_twice"),
                *("averaged_twice", "unwaited", "same_samples"),
            ),
            "delay": ("slept", "sleeps_after", "no_bottleneck", "slow_with_one"),
            "seconds": (
                *("delay_timed", "backward_timed", "all_timed", "milliseconds", "wrong_seconds"),
                *("not_synchronised", "queue_timed"),
            ),
        },
    ),
)
