"""What `shoal lab check 1` tries."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check
from shoal.labs.lab1 import check_steps, check_training

CHECKS = (
    Check(("zero_grad",), "MyOptimizer.py", alone(check_steps.zero_grad)),
    Check(("gd_step",), "MyOptimizer.py", alone(check_steps.gd_step)),
    Check(("sgd_step",), "MyOptimizer.py", alone(check_steps.sgd_step)),
    Check(("adam_state", "adam_step"), "MyOptimizer.py", alone(check_steps.adam_step)),
    Check(("batches",), "model.py", alone(check_training.batches)),
    Check(("train_step",), "model.py", alone(check_training.train_step)),
)
