"""The checks of `shoal lab check 2`."""

from shoal_labs.check.alone import alone
from shoal_labs.check.fault import Check, parted
from shoal_labs.check.program import in_its_form
from shoal_labs.lab2.check import course, step
from shoal_labs.lab2.check.averages import GIVEN, average_check

CHECKS = (
    average_check("allreduce_average_gradients"),
    average_check("allgather_average_gradients"),
    average_check("reduce_average_gradients", course=False),
    Check(
        ("train_step",),
        "model.py",
        in_its_form("train_step", alone(step.train_step_faults, meet=True), GIVEN, course.train_step_faults),
        course=False,
        part=parted(**step.PARTS),
        parts=len(step.PARTS),
    ),
)
