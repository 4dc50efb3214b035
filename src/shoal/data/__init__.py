"""Data sets, each two tensors, and their division among workers.

::

    load        a configuration to a DataSet            dataset     DataSet, Split, Batch, normalised and augmented
    sources/    published data sets: find, fetch, verify, decode
    synthetic   data sets generated from a seed         own/        what a function or file of the user's own has
    on_demand/  samples that are read while a run trains: pictures, tar shards, tokens, torch data sets
    holdout     a stratified validation part            seeds       a random generator for each purpose
    division/   which worker takes which samples

>>> import torch
>>> from shoal.config.sections.data import DigitsConfig
>>> data = load(DigitsConfig())
>>> data.batch(data.test, indices=torch.arange(8)).inputs.shape
torch.Size([8, 1, 28, 28])
"""

from shoal.data.dataset import Batch, DataSet, Split
from shoal.data.load import load

__all__ = ["Batch", "DataSet", "Split", "load"]
