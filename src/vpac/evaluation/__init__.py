"""Agents and environments become numbers: returns of episodes, and where their variance comes from."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily

if TYPE_CHECKING:
    from vpac.evaluation.actors import load_agent
    from vpac.evaluation.play import budget_report, evaluate
    from vpac.evaluation.sources import Sources, variance_sources

NAMES = {
    "actors": ("load_agent",),
    "play": ("budget_report", "evaluate"),
    "sources": ("Sources", "variance_sources"),
}

__all__ = ["Sources", "budget_report", "evaluate", "load_agent", "variance_sources"]

__getattr__, __dir__ = lazily(
    __name__, {name: f"vpac.evaluation.{module}" for module, names in NAMES.items() for name in names}
)
