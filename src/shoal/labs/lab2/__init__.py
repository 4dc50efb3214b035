"""Lab 2: communication and aggregation.

::

    plan        which runs, under which conditions                        words/      the sentences, per language
    averaging   gradient averaging by every collective of the course      solution/   the student's files, solved
    experiment  all runs, in run folders                                  measure     run folders → numbers
    findings    numbers → verdicts                                        figures, document   the report
    lab         from settings to report
"""
