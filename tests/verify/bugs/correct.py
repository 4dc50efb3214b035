"""Correct programs: no difference may be found."""

from bugs.program import Accumulating, Program, Sums, Wrapped

CORRECT = {each.__name__: each for each in (Program, Sums, Wrapped, Accumulating)}
