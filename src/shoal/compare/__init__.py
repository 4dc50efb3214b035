"""`shoal compare`: train one recipe in several ways, and compare the runs in a table, a verdict and a report."""
