"""The lab on gradient compression: link × codec.

::

    plan        which runs, on which links                 words/      the sentences, per language
    measure     run folders → numbers                      claims      numbers → verdicts
    pareto      which codecs no other one beats            findings    which numbers go into which claim
    lab         the spec for the frame                     figures, tables, document   the report
"""
