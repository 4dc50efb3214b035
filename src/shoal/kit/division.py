"""Data sets and their division among workers."""

from shoal.data import load as data_load
from shoal.data.dataset import DataSet, Split
from shoal.data.division import Division, Global, build_division, order, partition
from shoal.data.division.coverage import Survey, expected_coverage_of_sampling, survey
from shoal.data.division.order import epoch_order, sample_draws
from shoal.data.division.partition import divide
from shoal.data.division.samplers import DistributedSampler, PartitionSampler, RandomSampler
from shoal.data.load import load
from shoal.data.seeds import generator_for

__all__ = [
    "DataSet",
    "DistributedSampler",
    "Division",
    "Global",
    "PartitionSampler",
    "RandomSampler",
    "Split",
    "Survey",
    "build_division",
    "data_load",
    "divide",
    "epoch_order",
    "expected_coverage_of_sampling",
    "generator_for",
    "load",
    "order",
    "partition",
    "sample_draws",
    "survey",
]
