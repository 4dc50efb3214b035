"""Lab 3: data parallelism.

::

    plan            every division of the data, every number of workers    page/       the page, per language
    own_loop        hand-written training loops, with any sampler          words/      labels, progress, checks
    wrong_samplers  two common errors                                      solution/   the student's files, solved
    seen            which samples each worker sees                         check/      checks of the student's files
    measure         run folders → numbers                                  claims      numbers → verdicts
    figures         the figures                                            content     what fills the page
    lab             the spec for the frame
"""
