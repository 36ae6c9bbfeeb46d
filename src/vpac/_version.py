"""The version, read by the build and by `vpac doctor`."""

__version__ = "0.1.0"
