"""Drawings of graphs: Graphviz DOT, Mermaid and SVG, and examples to draw."""

from shoal.autograd.drawing.formats import dot, mermaid, svg

__all__ = ["dot", "mermaid", "svg"]
