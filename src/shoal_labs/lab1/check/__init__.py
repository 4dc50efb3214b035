"""The checks of `shoal lab check 1`."""

from shoal_labs.check.alone import observed
from shoal_labs.check.fault import Check, parted
from shoal_labs.check.program import in_its_form
from shoal_labs.lab1.check import course, steps, training

GIVEN = ("batches", "train_step", "read_idx", "load_data")
"""Functions by which model.py is known to be made from our hand-out."""
CHECKS = (
    Check(("zero_grad",), "MyOptimizer.py", observed(steps.cleared, steps.zero_grad_faults)),
    Check(("gd_step",), "MyOptimizer.py", observed(steps.descended, steps.descent_faults, "GdOptimizer")),
    Check(("sgd_step",), "MyOptimizer.py", observed(steps.descended, steps.descent_faults, "SgdOptimizer")),
    Check(
        ("adam_state", "adam_step"),
        "MyOptimizer.py",
        observed(steps.adapted, steps.adam_faults),
        blame={
            **dict.fromkeys((*steps.WRONG_ADAMS, *steps.OTHER_RULES, "step"), "adam_step"),
            **dict.fromkeys(("adam_shared", "adam_shares_state", "__init__"), "adam_state"),
        },
    ),
    Check(
        ("batches",),
        "model.py",
        in_its_form(
            "batches", observed(training.all_passes, training.batches_faults), GIVEN, course.batches_faults
        ),
        run="training",
        course=False,
        part=training.batches_part,
        parts=len(training.OPTIMIZERS),
    ),
    Check(
        ("train_step",),
        "model.py",
        in_its_form(
            "train_step",
            observed(training.trained, training.train_step_faults),
            GIVEN,
            course.train_step_faults,
        ),
        run="training",
        course=False,
        part=parted(**training.PARTS),
        parts=len(training.PARTS),
    ),
)
