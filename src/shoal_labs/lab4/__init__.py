"""Lab 4: model parallelism.

::

    plan        one machine, RPC, every schedule, tensor; cuts     words/      the sentences, per language
    actions     what each stage did when, from events              solution/   the student's files, solved
    waiting     idle until a neighbour sends, then transfer
    measure     run folders → numbers                              check/      checks of the student's files
    findings    numbers → verdicts                                 lab         the spec for the frame
    figures, tables, document   the report
"""
