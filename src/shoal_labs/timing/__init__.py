"""Timing on a noisy machine: functions and runs that take turns, and what other programs used of it meanwhile."""
