"""Memory against time: every technique of `shoal memory` on one run.

::

    plan        the run that is changed                    claims      numbers → verdicts
    measure     trials of every technique → numbers        findings    which numbers go into which claim
    figures, tables, document                              the report
"""
