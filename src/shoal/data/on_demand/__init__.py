"""Samples that are read while a run trains, because they do not fit in memory.

::

    pictures    a folder of class folders          shards    tar files of pictures or arrays with labels
    tokens      a flat file of token numbers       own       the user's map-style or iterable torch data set
    source      what all of these are: samples by number
    read        some samples as tensors, each checked
    seeded      the random numbers of (seed, epoch, sample)
    loaders     the same reads in processes of torch's DataLoader, ahead of the training
    split       a `Split` whose samples come from a source
    load        the data set at a path
"""
