"""Lab 2: communication and aggregation.

::

    plan        which runs, under which conditions             page/       the report as a template, per language
    averaging   every way of averaging, by name                words/      names, progress, checks, per language
    measure     run folders → numbers                          solution/   the student's files, solved
    claims      numbers → verdicts                             check/      checks of the student's files
    content     numbers → values and tables of the page        lab         the spec for the frame
    figures     numbers → pictures
"""
