"""Lab 1: gradient descent on one machine.

::

    plan        what is trained, with which candidates and how long       words/      the sentences, per language
    sweep       a learning rate chosen on the validation set              solution/   the student's files, solved
    experiment  all runs, in run folders                                  noise       how far a batch's gradient is off
    measure     run folders → numbers                                     findings    numbers → verdicts
    figures, document   the report                                        lab         from settings to report
"""
