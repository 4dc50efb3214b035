"""Building, training and evaluating as a worker of a run does it; groups of workers and their collectives."""

from shoal.comm import algorithms
from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.costs import sends
from shoal.comm.group import Group
from shoal.comm.threads.group import run_threads
from shoal.comm.threads.meetings import frames_of
from shoal.launch import threads
from shoal.launch.cores import threads_per_worker
from shoal.launch.run import launch_run
from shoal.training import checkpoint
from shoal.training.build import build_model, torch_settings
from shoal.training.hooks.balance import balanced
from shoal.training.memory.checkpointing import RecomputedBlock
from shoal.training.observer import Observer, Silent
from shoal.training.prune.one_shot import prune_once, pruning_config
from shoal.training.result import Result
from shoal.training.saved import open_saved
from shoal.training.stop import Series, interrupted_by
from shoal.training.weights import read_model

__all__ = [
    "ALGORITHMS",
    "Group",
    "Observer",
    "RecomputedBlock",
    "Result",
    "Series",
    "Silent",
    "algorithms",
    "balanced",
    "build_model",
    "checkpoint",
    "frames_of",
    "interrupted_by",
    "launch_run",
    "open_saved",
    "prune_once",
    "pruning_config",
    "read_model",
    "run_threads",
    "sends",
    "threads",
    "threads_per_worker",
    "torch_settings",
]
