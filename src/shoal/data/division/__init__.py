"""Division of a data set among workers.

::

    steps             which worker takes which samples of a step: what the training loop uses
    order             the order of an epoch, shares of a batch, and sizes of parts
    partition         rules that give each worker samples of its own
    label_partition   rules that depend on labels
    subsets           a torch Subset for each worker, and the labels of any torch data set
    samplers          samplers for a torch DataLoader, and a check that a DataLoader divides at all
    coverage          which samples all workers see
"""

from shoal.data.division.steps import ByLeaves, Division, Global, Parted, Sampled, build_division, parts_by

__all__ = ["ByLeaves", "Division", "Global", "Parted", "Sampled", "build_division", "parts_by"]
