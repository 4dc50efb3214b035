"""The lab on optimisation: gradient compression, slow workers, pruning, memory.

::

    lab         the spec for the frame: the parts one after the other
    part        what a part is                             words/      the sentences, per language
    pareto      what nothing else beats                    compression/, straggler/, pruning/, memory/   the parts
"""
