"""Gradient compression: link × codec.

::

    plan        which runs, on which links                 claims      numbers → verdicts
    measure     run folders → numbers                      findings    which numbers go into which claim
    pareto      which codecs no other one beats            figures, tables, document   the report
"""
