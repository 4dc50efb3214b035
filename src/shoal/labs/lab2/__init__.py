"""Lab 2: communication and aggregation.

::

    plan        which runs, under which conditions                        words/      the sentences, per language
    averaging   gradient averaging by every collective of the course      solution/   the student's files, solved
    branches    these and our algorithms, by name                         sums        is it the sum?
    experiment  all runs, in run folders                                  steps       own work, waiting, moving
    measure     run folders → numbers                                     claims      numbers → verdicts
    findings    which numbers go into which claim                         figures, document   the report
    lab         from settings to report
"""
