"""Pruning: accuracy against sparsity, with speed and size.

::

    plan        which runs, at which sparsities            claims      numbers → verdicts
    measure     trains and prunes, run folders → numbers   findings    which numbers go into which claim
    figures, tables, document                              the report
"""
