"""Evaluate agents in environments: returns of episodes, sources of their variance, certificates, stress tests, logs."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily

if TYPE_CHECKING:
    from vpac.evaluation.actors import load_agent
    from vpac.evaluation.certification import certify
    from vpac.evaluation.importance import OfflineEstimate, OfflineReport, offline
    from vpac.evaluation.log import Log, load_log
    from vpac.evaluation.play import budget_report, evaluate
    from vpac.evaluation.sources import Sources, variance_sources
    from vpac.evaluation.stressing import Axis, StressTest, stress

NAMES = {
    "actors": ("load_agent",), "certification": ("certify",), "importance": ("OfflineEstimate", "OfflineReport", "offline"),
    "log": ("Log", "load_log"), "play": ("budget_report", "evaluate"), "sources": ("Sources", "variance_sources"),
    "stressing": ("Axis", "StressTest", "stress"),
}  # fmt: skip

__all__ = [
    "Axis", "Log", "OfflineEstimate", "OfflineReport", "Sources", "StressTest", "budget_report", "certify", "evaluate",
    "load_agent", "load_log", "offline", "stress", "variance_sources",
]  # fmt: skip

__getattr__, __dir__ = lazily(
    __name__, {name: f"vpac.evaluation.{module}" for module, names in NAMES.items() for name in names}
)
