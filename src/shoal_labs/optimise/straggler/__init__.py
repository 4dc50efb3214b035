"""One slow worker: straggler × the ways of waiting.

::

    plan        which runs, under which conditions         claims      numbers → verdicts
    measure     run folders → numbers                      findings    which numbers go into which claim
    updates     what the server's log of updates shows     figures, tables, document   the report
"""
