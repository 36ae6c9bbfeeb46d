"""Risk-averse reinforcement learning: maximise mean − ψ · variance of the return."""

from typing import TYPE_CHECKING

from vpac import _start as _start  # first: the imports after it take long
from vpac._lazy import lazily
from vpac._version import __version__
from vpac.algorithms import ALGORITHMS
from vpac.envs.registration import register

if TYPE_CHECKING:
    from vpac import deep, envs, evaluation, oracle, risk, tabular
    from vpac.deep import MVPIPPO, PPO, VAACPPO, VPACPPO
    from vpac.envs.finite_mdp import FiniteMDP
    from vpac.errors import UserError
    from vpac.evaluation.certification import certify
    from vpac.evaluation.importance import offline
    from vpac.evaluation.play import budget_report, evaluate
    from vpac.risk.budget import Budget
    from vpac.risk.monitoring import monitor
    from vpac.risk.sample import ReturnSample
    from vpac.tabular import AC, MVPI, VAAC, VAACTD, VPAC, OffPolicyAC, OffPolicyVAAC, OffPolicyVAACTD, OffPolicyVPAC

__all__ = [
    "AC", "MVPI", "MVPIPPO", "PPO", "VAAC", "VAACPPO", "VAACTD", "VPAC", "VPACPPO", "Budget", "FiniteMDP", "OffPolicyAC",
    "OffPolicyVAAC", "OffPolicyVAACTD", "OffPolicyVPAC", "ReturnSample", "UserError", "__version__", "budget_report", "certify",
    "deep", "envs", "evaluate", "evaluation", "learners", "monitor", "offline", "oracle", "risk", "tabular",
]  # fmt: skip

__getattr__, __dir__ = lazily(
    __name__,
    {
        **{algorithm.class_name: algorithm.package for algorithm in ALGORITHMS.values()},
        **{name: f"vpac.{name}" for name in ("deep", "envs", "evaluation", "learners", "oracle", "risk", "tabular")},
        "FiniteMDP": "vpac.envs.finite_mdp", "Budget": "vpac.risk.budget", "ReturnSample": "vpac.risk.sample",
        "UserError": "vpac.errors", "budget_report": "vpac.evaluation.play", "certify": "vpac.evaluation.certification",
        "monitor": "vpac.risk.monitoring", "evaluate": "vpac.evaluation.play", "offline": "vpac.evaluation.importance",
    },
)  # fmt: skip

register()
