"""Comparisons with several seeds, or with several values of a setting: tables and figures for a paper."""
