"""`shoal lab N --solution DIR`: the report of a student's own code, beside the same training done right.

::

    submission   the student's folder, and what `lab check` says about it
    host         where the code of an experiment runs: here, or a student's in processes of its own
    part         one thing that the student wrote: its runs, and the same runs done right
    loop         the training loop around it
    claims       what the numbers say
    spec         all of it as a lab for the frame; `document`, `figures` and `tables` are its page
    nodes        what runs in processes with the student's files, a file for each lab
    experiments  what is measured by it, a file for each lab
"""
