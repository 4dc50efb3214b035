"""The lab of automatic differentiation: a tape, a graph, and what each of them costs.

::

    plan        how much is measured                                      words/      the sentences, per language
    course      the course's worked example, with its printed tape        networks    dynamic against static
    caching     a repeated sub-expression on the tape                     chains      the order of matrix products
    contest     times of rivals that take turns                           memory      the most bytes held at once
    experiment  everything measured, in order                             findings    numbers → verdicts
    figures, tables, document   the report                                lab         the spec for the frame
"""
