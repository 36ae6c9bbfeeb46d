"""Tabular and linear actor-critics, compiled: every algorithm of the paper, as published and corrected."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily

if TYPE_CHECKING:
    from vpac.learners.ac import AC, OffPolicyAC
    from vpac.learners.learner import Diverged, Learner, OffPolicyLearner
    from vpac.learners.many import learn_many
    from vpac.learners.mvpi import MVPI
    from vpac.learners.options import OffPolicyOptions, Options
    from vpac.learners.vaac import VAAC, VAACTD, OffPolicyVAAC, OffPolicyVAACTD
    from vpac.learners.vpac import VPAC, OffPolicyVPAC

HOMES = {
    "AC": "ac", "Diverged": "learner", "Learner": "learner", "OffPolicyAC": "ac", "OffPolicyLearner": "learner",
    "OffPolicyOptions": "options", "OffPolicyVAAC": "vaac", "OffPolicyVAACTD": "vaac", "OffPolicyVPAC": "vpac",
    "Options": "options", "VAAC": "vaac", "VAACTD": "vaac", "VPAC": "vpac", "learn_many": "many",
    "MVPI": "mvpi",
}  # fmt: skip

__all__ = [  # noqa: PLE0604, RUF100
    "AC", "MVPI", "VAAC", "VAACTD", "VPAC", "Diverged", "Learner", "OffPolicyAC", "OffPolicyLearner", "OffPolicyOptions",
    "OffPolicyVAAC", "OffPolicyVAACTD", "OffPolicyVPAC", "Options", "learn_many",
]  # fmt: skip

__getattr__, __dir__ = lazily(__name__, {name: f"vpac.learners.{home}" for name, home in HOMES.items()})
