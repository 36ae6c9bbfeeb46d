"""vpac: reinforcement learning that cares how much its results vary."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily
from vpac._version import __version__
from vpac.envs.registration import register

if TYPE_CHECKING:
    from vpac import envs, oracle
    from vpac.envs.finite_mdp import FiniteMDP
    from vpac.errors import UserError

__all__ = ["FiniteMDP", "UserError", "__version__", "envs", "oracle"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "FiniteMDP": "vpac.envs.finite_mdp",
        "UserError": "vpac.errors",
        "envs": "vpac.envs",
        "oracle": "vpac.oracle",
    },
)

register()
