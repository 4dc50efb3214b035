"""Division of a data set among workers.

::

    steps             which worker takes which samples of a step: what the training loop uses
    leaves            the same micro-batches for any number of workers
    order             the order of an epoch, and shares of a batch
    partition         rules that give each worker samples of its own
    label_partition   rules that depend on labels            dirichlet   random proportions
    parts             sizes and owners of parts              labels      the labels of a torch data set
    subsets           a torch Subset for each worker         samplers    samplers for a torch DataLoader
    coverage          which samples all workers see          check_loader   whether a DataLoader divides at all
"""

from shoal.data.division.leaves import ByLeaves
from shoal.data.division.steps import Division, Global, Parted, Sampled, build_division, parts_by

__all__ = ["ByLeaves", "Division", "Global", "Parted", "Sampled", "build_division", "parts_by"]
