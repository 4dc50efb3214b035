"""Data sets as two tensors each, and who takes which samples when.

::

    catalogue   which files make up a published data set: sizes, sha256, mirrors
    files       find them on this machine, verify them           content   bytes of a file, plain or gzip
    fetch       get them here, whole or not at all               idx, cifar   bytes → tensors
    synthetic   data made from a seed                            holdout   a stratified validation part
    load        a configuration → DataSet                        dataset   Split, DataSet, Batch
    augment     shift and mirror whole batches                   order     an epoch's order, who takes what
    normalise   bytes into floats, to the same bits everywhere   store     write a file whole or not at all

>>> import torch
>>> from shoal.config.schema import DigitsConfig
>>> data = load(DigitsConfig())
>>> data.batch(data.test, indices=torch.arange(8)).inputs.shape
torch.Size([8, 1, 28, 28])
"""

from shoal.data.dataset import Batch, DataSet, Split
from shoal.data.load import load

__all__ = ["Batch", "DataSet", "Split", "load"]
