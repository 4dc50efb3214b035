"""Lab 1: gradient descent on one machine.

::

    plan        what is trained, with which candidates and how long     words/      the sentences, per language
    sweep       chooses a learning rate on the validation set           solution/   the student's files, solved
    experiment  all runs, in run folders                                check/      checks of the student's files
    noise       distance of a batch's gradient from the whole one       findings    numbers → verdicts
    measure     run folders → numbers                                   lab         the spec for the frame
    figures, tables, document   the report
"""
