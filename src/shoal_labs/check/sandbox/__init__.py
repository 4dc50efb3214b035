"""Where students' code runs: a process with limits, in namespaces of its own where the system has them.

::

    kernel      the calls of Linux that Python 3.11 does not have     worker    one process that checks task after task
    isolation   namespaces, a root of its own, no capabilities        pool      several workers side by side
    limits      processes, memory, files                              task      one task of one folder, and its result
"""
