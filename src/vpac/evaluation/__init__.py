"""Evaluate agents in environments: returns of episodes, sources of their variance, certificates, stress tests, logs."""

from vpac.evaluation.actors import load_agent
from vpac.evaluation.certification import certify
from vpac.evaluation.importance import OfflineEstimate, OfflineReport, offline
from vpac.evaluation.log import Log, load_log
from vpac.evaluation.play import budget_report, evaluate
from vpac.evaluation.sources import Sources, variance_sources
from vpac.evaluation.stressing import Axis, StressTest, stress

__all__ = [
    "Axis", "Log", "OfflineEstimate", "OfflineReport", "Sources", "StressTest", "budget_report", "certify", "evaluate",
    "load_agent", "load_log", "offline", "stress", "variance_sources",
]  # fmt: skip
