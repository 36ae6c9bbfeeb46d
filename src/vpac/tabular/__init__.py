"""Tabular and linear actor-critics, compiled: every algorithm of the paper, as published and corrected."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily

if TYPE_CHECKING:
    from vpac.errors import Diverged
    from vpac.tabular.agents import (
        AC,
        MVPI,
        VAAC,
        VAACTD,
        VPAC,
        Learner,
        OffPolicyAC,
        OffPolicyLearner,
        OffPolicyVAAC,
        OffPolicyVAACTD,
        OffPolicyVPAC,
        learn_many,
    )
    from vpac.tabular.options import OffPolicyOptions, Options

__all__ = [
    "AC", "MVPI", "VAAC", "VAACTD", "VPAC", "Diverged", "Learner", "OffPolicyAC", "OffPolicyLearner", "OffPolicyOptions",
    "OffPolicyVAAC", "OffPolicyVAACTD", "OffPolicyVPAC", "Options", "learn_many",
]  # fmt: skip

_ELSEWHERE = {"Diverged": "vpac.errors"} | dict.fromkeys(("OffPolicyOptions", "Options"), "vpac.tabular.options")

__getattr__, __dir__ = lazily(__name__, dict.fromkeys(__all__, "vpac.tabular.agents") | _ELSEWHERE)
