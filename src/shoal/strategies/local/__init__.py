"""Local SGD, DiLoCo and streaming DiLoCo: workers train alone for some steps, then average their weights."""
