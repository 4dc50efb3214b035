"""Gradient compression: link × codec.

::

    plan        which runs, on which links                 claims      numbers → verdicts
    measure     run folders → numbers                      findings    which numbers go into which claim
    figures, tables, document                              the report
"""
