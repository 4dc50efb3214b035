"""Finds the first difference between a distributed run of a program and one machine: `shoal verify PROGRAM`."""

from shoal.verify.seen import watch as watch
