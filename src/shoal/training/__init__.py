"""Training: the loop, the worker that builds everything for it, evaluation, checkpoints, schedules."""
