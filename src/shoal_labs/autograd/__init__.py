"""The lab of automatic differentiation: a tape, a graph, and what each of them costs.

::

    plan        how much is measured                                page/       the page, per language
    course      the course's worked example, with its printed tape  words/      labels and progress, per language
    networks    dynamic against static: time and memory             experiment  sharing, matrix chains, everything
    claims      numbers → verdicts                                  content     what fills the page
    figures     the figures                                         lab         the spec for the frame
"""
