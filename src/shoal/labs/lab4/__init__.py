"""Lab 4: model parallelism.

::

    solution/   the student's files, solved     check/   checks of the student's program     words/   the sentences
"""
