"""Reports: run folders become curves, curves become findings, figures and documents. Nothing here needs torch."""
