"""`shoal compare`: train one recipe in several ways, and compare the runs in a table, a verdict and a report.

More than fifteen modules, because runs, one or many, are measured, judged, put into words and shown by one module each.
"""
