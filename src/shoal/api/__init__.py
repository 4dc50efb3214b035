"""What a program calls: `shoal.train`, its callbacks, and what is done with finished runs. The commands are clients."""

TAKES: dict[str, tuple[str, ...]] = {
    "evaluate": ("data", "model", "loss", "train.metrics", "device", "threads"),
    "prune": (
        *("data", "model", "optimizer", "schedule", "launch", "strategy", "sync", "exchange", "checkpoint"),
        *("output", "device", "threads", "train.batch_size", "train.micro_batch", "train.clip_norm"),
    ),
}
"""The settings of a run, by section or path, that a function and the command of its name take."""
