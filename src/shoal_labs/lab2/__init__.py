"""Lab 2: communication and aggregation.

::

    plan        which runs, under which conditions                      words/      the sentences, per language
    averaging   gradient averaging by every collective of the course    solution/   the student's files, solved
    branches    these and our algorithms, by name                       check/      checks of the student's files
    sums        every branch against the exact sum                      claims      numbers → verdicts
    measure     run folders → numbers                                   lab         the spec for the frame
    findings    which numbers go into which claim                       figures, tables, document   the report
"""
