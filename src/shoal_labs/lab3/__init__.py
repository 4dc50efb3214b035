"""Lab 3: data parallelism.

::

    plan            every division of the data, every number of workers    words/      the sentences, per language
    own_loop        a hand-written training loop, with any sampler         solution/   the student's files, solved
    wrong_samplers  two common errors                                      check/      checks of the student's files
    seen            which samples each worker sees                         order       one machine with the same samples
    measure         run folders → numbers                                  findings    numbers → verdicts
    figures, tables, document   the report                                 lab         the spec for the frame
"""
