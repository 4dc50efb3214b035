"""The checks of `shoal lab check 1`."""

from shoal_labs.check.fault import Check

GIVEN = ("batches", "train_step", "read_idx", "load_data")
STEPS = "shoal_labs.lab1.check.steps"
TRAINING = "shoal_labs.lab1.check.training"
COURSE = "shoal_labs.lab1.check.course"
OPTIMIZERS = "MyOptimizer.py"
CHECKS = (
    Check(("zero_grad",), OPTIMIZERS, f"{STEPS}:cleared", f"{STEPS}:zero_grad_faults"),
    Check(("gd_step",), OPTIMIZERS, f"{STEPS}:descended", f"{STEPS}:descent_faults", ("GdOptimizer",)),
    Check(("sgd_step",), OPTIMIZERS, f"{STEPS}:descended", f"{STEPS}:descent_faults", ("SgdOptimizer",)),
    Check(
        ("adam_state", "adam_step"),
        OPTIMIZERS,
        f"{STEPS}:adapted",
        f"{STEPS}:adam_faults",
        blame={
            "step": "adam_step",
            **dict.fromkeys(("adam_shared", "adam_shares_state", "__init__"), "adam_state"),
        },
    ),
    Check(
        ("batches",),
        "model.py",
        f"{TRAINING}:all_passes",
        f"{TRAINING}:batches_faults",
        program=f"{COURSE}:batches_faults",
        given=GIVEN,
        run="training",
        parts={"gd": (), "sgd": (), "adam": ()},
    ),
    Check(
        ("train_step",),
        "model.py",
        f"{TRAINING}:trained",
        f"{TRAINING}:train_step_faults",
        program=f"{COURSE}:train_step_faults",
        given=GIVEN,
        run="training",
        parts={
            "step": ("steps", "no_gradient", "accumulates", "wrong_gradient", "unmoved"),
            "loss": ("wrong_loss", "not_a_float"),
        },
    ),
)
