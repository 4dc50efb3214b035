"""Data sets as two tensors each, and who takes which samples when.

::

    catalogue   which files make up a published data set: sizes, sha256, mirrors
    files       find them on this machine, verify them           content   bytes of a file, plain or gzip
    fetch       get them here, whole or not at all               idx, cifar   bytes → tensors
    synthetic   data made from a seed                            holdout   a stratified validation part
    load        a configuration → DataSet                        dataset   Split, DataSet, Batch
    augment     shift and mirror whole batches                   normalise   bytes into floats, the same bits everywhere
    order       an epoch's order, shares of a step               store     write a file whole or not at all
    partition   who owns which samples: rules                    label_partition, dirichlet   rules that go by labels
    division    who takes which samples of a step                parts     sizes and owners of parts
    samplers    for any torch DataLoader                         subsets   a torch Subset for each worker
    coverage    what all workers see together                    check_loader   whether a DataLoader divides at all

>>> import torch
>>> from shoal.config.schema import DigitsConfig
>>> data = load(DigitsConfig())
>>> data.batch(data.test, indices=torch.arange(8)).inputs.shape
torch.Size([8, 1, 28, 28])
"""

from shoal.data.dataset import Batch, DataSet, Split
from shoal.data.load import load

__all__ = ["Batch", "DataSet", "Split", "load"]
