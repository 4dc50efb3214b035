"""What `shoal lab check 2` tries."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check
from shoal.labs.lab2.check import averages, step
from shoal.labs.lab2.check.averages import average_check

CHECKS = (
    Check(
        ("allreduce_average_gradients",),
        "dist_utils.py",
        average_check(averages.allreduce, "all_reduce"),
    ),
    Check(
        ("allgather_average_gradients",),
        "dist_utils.py",
        average_check(averages.allgather, "all_gather", "all_reduce"),
    ),
    Check(
        ("reduce_average_gradients",),
        "dist_utils.py",
        average_check(averages.reduce, "reduce", "all_reduce", "all_gather"),
    ),
    Check(("train_step",), "model.py", alone(step.train_step, meet=True)),
)
