"""The PPO family in JAX: PPO, VPAC and VAAC. Needs the extra `deep`; learned policies need only NumPy."""

from typing import TYPE_CHECKING, Any

from vpac._lazy import lazily
from vpac.algorithms import DEEP

if TYPE_CHECKING:
    from vpac.deep.diagnostics import NotFinite
    from vpac.deep.policy import NumpyPolicy, load_policy
    from vpac.deep.ppo import MVPIPPO, PPO, VAACPPO, VPACPPO

__all__ = ["MVPIPPO", "PPO", "VAACPPO", "VPACPPO", "NotFinite", "NumpyPolicy", "load_policy"]

_find, __dir__ = lazily(
    __name__,
    {
        **{algorithm.class_name: algorithm.home for algorithm in DEEP},
        **dict.fromkeys(("NumpyPolicy", "load_policy"), "vpac.deep.policy"),
        "NotFinite": "vpac.deep.diagnostics",
    },
)


def __getattr__(name: str) -> Any:
    try:
        return _find(name)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("jax", "jaxlib", "optax", "equinox"):
            raise
        from vpac.errors import needs_extra

        raise needs_extra(name, error, "deep") from None
