"""Lab 3: data parallelism.

::

    plan            which runs: every division of the data, every number of workers      words/      the sentences
    wrong_samplers  two classic errors                                                   solution/   the student's files
    own_loop        a training loop of one's own, with any sampler, with the wrapper
    seen            who sees what of the data set         order       one machine that takes the same samples
    experiment      all runs, in run folders              measure     run folders → numbers
    findings        numbers → verdicts                    figures, document   the report
    lab             from settings to report
"""
