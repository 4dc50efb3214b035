"""Lab 1: gradient descent on one machine.

::

    plan        what is trained, with which candidates and how long     page/       the page, per language
    sweep       chooses a learning rate on the validation set           words/      labels, progress, checks
    experiment  all runs, in run folders                                solution/   the student's files, solved
    noise       distance of a batch's gradient from the whole one       check/      checks of the student's files
    measure     run folders → numbers                                   claims      numbers → verdicts
    content     what fills the page; figures, tables: the rest          lab         the spec for the frame
"""
