"""The lab on optimisation: gradient compression, slow workers, pruning, memory.

::

    lab         the spec for the frame: the parts one after the other
    part        what a part is                             words/, page/   names and the page, per language
    pareto      what nothing else beats                    compression, straggler, pruning, memory: runs → numbers
    *_page      claims, places of the page and figures of each part
"""
