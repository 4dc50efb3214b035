"""What `shoal lab check 3` tries."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check
from shoal.labs.lab3.check import epoch, samplers

CHECKS = (
    Check(("set_epoch", "length", "random_partition"), "sampler.py", alone(samplers.partition)),
    Check(("random_sampling",), "sampler.py", alone(samplers.sampling)),
    Check(("train_epoch",), "model.py", epoch.faults),
)
