"""Lab 2: communication and aggregation.

::

    plan        which runs, under which conditions                      words/      the sentences, per language
    averaging   gradient averaging by every collective of the course    solution/   the student's files, solved
    branches    these and our algorithms, by name                       check/      checks of the student's files
    sums        every branch against the exact sum                      steps       own work, waiting, moving
    measure     run folders → numbers                                   claims      numbers → verdicts
    findings    which numbers go into which claim                       lab         the spec for the frame
    figures, tables, document   the report
"""
