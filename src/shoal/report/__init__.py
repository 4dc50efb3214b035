"""Reports: run folders become curves, curves become findings, figures and documents. Nothing here needs torch.

More than fifteen modules, because each has one thing that all reports share: a way to read runs, to draw, or to write.
"""
