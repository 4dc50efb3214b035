"""Lab 3: data parallelism.

::

    plan            every division of the data, every number of workers    page/       the page, per language
    own_loop        a hand-written training loop, with any sampler         words/      labels, progress, checks
    wrong_samplers  two common errors                                      solution/   the student's files, solved
    seen            which samples each worker sees                         check/      checks of the student's files
    order           one machine with the same samples                      claims      numbers → verdicts
    measure, pace   run folders → numbers                                  content     what fills the page
    figures         the figures                                            lab         the spec for the frame
"""
