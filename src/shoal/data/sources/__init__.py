"""Published data sets: where their files are, how to fetch and verify them, and how to decode them.

::

    catalogue   the files of each data set: sizes, sha256, mirrors
    files       find them on this machine and verify them
    fetch       download or copy them, each completely or not at all
    formats     their bytes, plain or gzip, and the tensors in them
"""
