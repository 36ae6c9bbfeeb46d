"""The former name of `vpac.tabular`."""

from vpac.tabular import *  # noqa: F403
from vpac.tabular import __all__ as __all__
