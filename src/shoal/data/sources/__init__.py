"""Published data sets: where their files are, how to fetch and verify them, and how to decode them.

::

    catalogue   the files of each data set: sizes, sha256, mirrors
    files       find them on this machine and verify them
    fetch       download or copy them
    store       write a file completely or not at all
    content     the bytes of a file, plain or gzip
    idx, cifar  bytes to tensors
"""
