"""ZeRO: optimizer state (stage 1), gradients (stage 2) and parameters (stage 3) are divided among the workers.

To follow a step, read in this order::

    zero.py                      `Zero.step`: the phases; `library.py` has those of `shoal.zero`
    ../replicas/lockstep.py      the parts of a share, in rounds that all workers make
    ../layout/whole.py           the gradients of the share
    ../gradient_engine.py        forward and backward of a part
    gather.py                    stage 3 without common memory: parameters exist while they are used
    gradients.py                 a unit's gradients are final, and are reduce-scattered
    ../buckets/gradient_slots.py how gradients get to flat memory
    shards.py                    the end of a pass; what each worker owns; new weights become visible
    ../guard.py                  all workers decide the same
    ../update.py                 clipping and the optimizer, also for `shoal.zero`
    ../norms.py                  one norm, however the parameters are divided
    ../pieces/slices.py          the slices that the optimizer updates

Before the first step of `shoal.zero`: `values.py` says where a model on the meta device has its values from, `meta.py`
draws them, `weights_file.py` reads them, and `../library/optimizer_afterwards.py` finds the optimizer.
"""
