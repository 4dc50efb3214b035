"""The checks of `shoal lab check 2`."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check, parted
from shoal.labs.lab2.check import step
from shoal.labs.lab2.check.averages import average_check

CHECKS = (
    average_check("allreduce_average_gradients"),
    average_check("allgather_average_gradients"),
    average_check("reduce_average_gradients", course=False),
    Check(
        ("train_step",),
        "model.py",
        alone(step.train_step_faults, meet=True),
        course=False,
        part=parted(**step.PARTS),
        parts=len(step.PARTS),
    ),
)
