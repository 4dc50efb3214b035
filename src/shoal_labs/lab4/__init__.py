"""Lab 4: model parallelism.

::

    plan        one machine, RPC, every schedule, tensor; cuts     page/       the page, per language
    actions     what each stage did when, from events              words/      labels, progress, checks
    waiting     idle until a neighbour sends, then transfer        solution/   the student's files, solved
    measure     run folders → numbers, in turns                    check/      checks of the student's files
    claims      numbers → verdicts                                 content     what fills the page
    figures     the figures                                        lab         the spec for the frame
"""
