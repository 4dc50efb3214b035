"""What `shoal lab check 2` tries."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check
from shoal.labs.lab2 import check_averages, check_step
from shoal.labs.lab2.check_averages import average_check

CHECKS = (
    Check(
        ("allreduce_average_gradients",),
        "dist_utils.py",
        average_check(check_averages.allreduce, "all_reduce"),
    ),
    Check(
        ("allgather_average_gradients",),
        "dist_utils.py",
        average_check(check_averages.allgather, "all_gather", "all_reduce"),
    ),
    Check(
        ("reduce_average_gradients",),
        "dist_utils.py",
        average_check(check_averages.reduce, "reduce", "all_reduce", "all_gather"),
    ),
    Check(("train_step",), "model.py", alone(check_step.train_step, meet=True)),
)
