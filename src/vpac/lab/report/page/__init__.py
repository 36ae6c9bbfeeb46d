"""The page of the reproduction: one HTML file that holds all it needs."""

from vpac.lab.report.page.writing import render, write_page

__all__ = ["render", "write_page"]
