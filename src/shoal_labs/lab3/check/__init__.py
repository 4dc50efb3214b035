"""The checks of `shoal lab check 3`."""

from shoal_labs.check.fault import Check

GIVEN = ("train_epoch", "read_idx", "load_data", "equally_many")
SAMPLERS = "shoal_labs.lab3.check.samplers"
EPOCH = "shoal_labs.lab3.check.epoch"
COURSE = "shoal_labs.lab3.check.course"
CHECKS = (
    *(
        Check((task,), "sampler.py", f"{SAMPLERS}:sampler_faults", args=(task,), run="sampler")
        for task in ("set_epoch", "length", "random_partition")
    ),
    Check(
        ("random_sampling",),
        "sampler.py",
        f"{SAMPLERS}:sampler_faults",
        args=("random_sampling",),
        name="MyRandomSampler",
        given=GIVEN,
    ),
    Check(
        ("train_epoch",),
        "model.py",
        f"{EPOCH}:epoch",
        f"{EPOCH}:epoch_faults",
        nodes=2,
        meet=True,
        program=f"{COURSE}:train_epoch_faults",
        given=GIVEN,
        parts={
            "epoch": ("set_epoch_not_called", "seed_by_rank", "same_samples", "same_losses"),
            "training": (
                *("mean_of_own", "mean_of_means", "not_divided", "divided_again", "accumulates"),
                *("nodes_differ", "unmoved", "not_one_machine", "empty_batch", "no_gradient"),
                *("softmax_twice", "sum"),
            ),
            "loss": ("epoch_loss",),
        },
    ),
)
