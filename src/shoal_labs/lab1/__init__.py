"""Lab 1: gradient descent on one machine.

::

    plan        what is trained, with which candidates and how long     page/       the page, per language
    experiment  the search of a learning rate, and all runs             words/      labels, progress, checks
    noise       noise of a gradient, loss of the whole set              solution/   the student's files, solved
    pace        the time of a step                                      check/      checks of the student's files
    measure     run folders → numbers                                   claims      numbers → verdicts
    content     what fills the page; figures: the rest                  lab         the spec for the frame
"""
