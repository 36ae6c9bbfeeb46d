"""Tabular and linear actor-critics, compiled: every algorithm of the paper, as published and corrected."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily

if TYPE_CHECKING:
    from vpac.tabular.agents import (
        AC,
        MVPI,
        VAAC,
        VAACTD,
        VPAC,
        Diverged,
        Learner,
        OffPolicyAC,
        OffPolicyLearner,
        OffPolicyVAAC,
        OffPolicyVAACTD,
        OffPolicyVPAC,
    )
    from vpac.tabular.many import learn_many
    from vpac.tabular.options import OffPolicyOptions, Options

AGENTS = (
    "AC", "MVPI", "VAAC", "VAACTD", "VPAC", "Diverged", "Learner", "OffPolicyAC", "OffPolicyLearner", "OffPolicyVAAC",
    "OffPolicyVAACTD", "OffPolicyVPAC",
)  # fmt: skip
HOMES = {
    **dict.fromkeys(AGENTS, "agents"), "OffPolicyOptions": "options", "Options": "options", "learn_many": "many",
}  # fmt: skip

__all__ = [  # noqa: PLE0604, RUF100
    "AC", "MVPI", "VAAC", "VAACTD", "VPAC", "Diverged", "Learner", "OffPolicyAC", "OffPolicyLearner", "OffPolicyOptions",
    "OffPolicyVAAC", "OffPolicyVAACTD", "OffPolicyVPAC", "Options", "learn_many",
]  # fmt: skip

__getattr__, __dir__ = lazily(__name__, {name: f"vpac.tabular.{home}" for name, home in HOMES.items()})
