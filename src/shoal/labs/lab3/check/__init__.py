"""The checks of `shoal lab check 3`."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check
from shoal.labs.lab3.check import epoch
from shoal.labs.lab3.check.samplers import sampler_faults

CHECKS = (
    Check(
        ("set_epoch", "length", "random_partition"), "sampler.py", alone(sampler_faults, "MySampler", True)
    ),
    Check(("random_sampling",), "sampler.py", alone(sampler_faults, "MyRandomSampler", False), course=False),
    Check(("train_epoch",), "model.py", epoch.faults, course=False),
)
