"""The labs of the course: each runs an experiment and writes a report, or hands out a skeleton for your own solution.

::

    frame      run_lab: takes a lab's spec from settings to a report      page/      templates, tables, figures
    settings   the settings of all labs, the printed command             handout/   skeletons, cut from our solutions
    runs       trains runs, or takes them over from an earlier report    check/     checks a student's solution
    claims     claims as rows                                            student/   reports on a student's code
    words      sentences in English and Chinese                          lab1/ …    what is particular to each lab
    rotation   ways that take turns in one run                           steps      own work, waiting, moving
"""
