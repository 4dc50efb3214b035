"""The checks of `shoal lab check 3`."""

from shoal.labs.check.alone import alone
from shoal.labs.check.fault import Check, parted
from shoal.labs.lab3.check import epoch
from shoal.labs.lab3.check.samplers import sampler_faults

CHECKS = (
    *(
        Check((task,), "sampler.py", alone(sampler_faults, task), run="sampler")
        for task in ("set_epoch", "length", "random_partition")
    ),
    Check(("random_sampling",), "sampler.py", alone(sampler_faults, "random_sampling"), course=False),
    Check(
        ("train_epoch",),
        "model.py",
        epoch.faults,
        course=False,
        part=parted(**epoch.PARTS),
        parts=len(epoch.PARTS),
    ),
)
