"""The registry of algorithms, which the library, the command line, shell completion, the documentation and the lab read.

Classes are named and not imported, so reading the registry needs neither Numba nor JAX.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from vpac.errors import UserError, suggestion

DEFAULT_GAMMA = 0.99
"""Discount of all learners, unless another one is asked for."""


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: its class and its requirements."""

    name: str
    """Its name on the command line and in stored runs, e.g. "vpac-ppo"."""
    class_name: str
    """The public class, as in `vpac.VPACPPO` and in agent.json."""
    about: str
    """One line for lists."""
    deep: bool = False
    """Whether it belongs to the PPO family (`vpac.deep`), or to the tabular and linear learners (`vpac.tabular`)."""
    off_policy: bool = False
    """Whether it learns from the experience of a behaviour policy, and has options for it."""
    priced: bool = True
    """Whether it has a price of variance ψ."""
    any_penalty: bool = False
    """Whether `penalty` may name another measure than the variance."""

    @property
    def package(self) -> str:
        """The package that offers the class."""
        return "vpac.deep" if self.deep else "vpac.tabular"

    @property
    def home(self) -> str:
        """The module that defines the class."""
        return "vpac.deep.ppo" if self.deep else "vpac.tabular.agents"

    @property
    def actions(self) -> tuple[str, ...]:
        """The action spaces of Gymnasium that it can learn in."""
        return ("Discrete", "Box") if self.deep else ("Discrete",)

    @property
    def unit(self) -> str:
        """The unit of the length of its training: the name of an option of the command line."""
        return "steps" if self.deep else "episodes"

    def load(self) -> Any:
        """Import the class."""
        return getattr(importlib.import_module(self.package), self.class_name)

    def load_options(self) -> Any:
        """Import the dataclass of its options."""
        name = "PPOOptions" if self.deep else "OffPolicyOptions" if self.off_policy else "Options"
        return getattr(importlib.import_module(f"{self.package}.options"), name)

    @property
    def options(self) -> list[str]:
        """Names of its options."""
        return [one.name for one in fields(self.load_options())]

    def check_settings(self, names: Iterable[str]) -> None:
        """Reject settings that its learner does not have, before they are passed to other functions."""
        known = self.options + (["preset", "backend"] if self.deep else [])
        for name in names:
            if name not in known:
                near = suggestion(name, known) or f": expected {', '.join(known)}"
                raise UserError(f"{self.name} has no setting {name!r}{near}")


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("ac", "AC", "Actor-critic: maximises the mean return. It is VPAC at ψ = 0, bit for bit.", priced=False),
        Algorithm(
            "vpac", "VPAC", "Variance-penalized actor-critic (Algorithm 1): maximises mean − ψ · variance of the return.",
            any_penalty=True,
        ),
        Algorithm("vaac", "VAAC", "Variance-adjusted actor-critic with Monte-Carlo critics (Algorithm 2)."),
        Algorithm("vaac-td", "VAACTD", "Variance-adjusted actor-critic with TD critics (Algorithm 3)."),
        Algorithm(
            "mvpi", "MVPI",
            "Mean-variance policy iteration around AC: `psi` prices the variance of a step's reward, not of the return.",
        ),
        Algorithm(
            "off-policy-ac", "OffPolicyAC",
            "Off-policy actor-critic: the mean return of the target policy, from a behaviour policy's experience.",
            off_policy=True, priced=False,
        ),
        Algorithm("off-policy-vpac", "OffPolicyVPAC", "Off-policy VPAC (Appendix D).", off_policy=True),
        Algorithm(
            "off-policy-vaac", "OffPolicyVAAC",
            "VAAC with importance sampling, Monte-Carlo critics. Whole returns carry ratios: there are no expected critics.",
            off_policy=True,
        ),
        Algorithm(
            "off-policy-vaac-td", "OffPolicyVAACTD",
            'Off-policy VAAC_TD, which the paper leaves out because its derivation "was not straightforward".',
            off_policy=True,
        ),
        Algorithm("ppo", "PPO", "Proximal policy optimisation, in JAX.", deep=True, priced=False),
        Algorithm(
            "vpac-ppo", "VPACPPO", "PPO that pays ψ for the variance of the return, with a direct critic of it.", deep=True,
            any_penalty=True,
        ),
        Algorithm(
            "vaac-ppo", "VAACPPO", "PPO with a variance-adjusted actor: its critic learns the second moment.", deep=True
        ),
        Algorithm(
            "mvpi-ppo", "MVPIPPO", "PPO whose rewards pay for the variance of a step's reward (MVPI).", deep=True
        ),
    )
}  # fmt: skip
TABULAR = [algorithm for algorithm in ALGORITHMS.values() if not algorithm.deep]
DEEP = [algorithm for algorithm in ALGORITHMS.values() if algorithm.deep]
PRICED = [algorithm for algorithm in ALGORITHMS.values() if algorithm.priced]
BY_CLASS = {algorithm.class_name: algorithm for algorithm in ALGORITHMS.values()}
"""Algorithms by the name in agent.json."""


def find(name: str, among: Iterable[Algorithm] = ALGORITHMS.values()) -> Algorithm:
    """The algorithm of a name, in any case and with "_" for "-"; a `UserError` suggests the nearest known name."""
    folded = name.casefold().replace("_", "-")
    known = [algorithm.name for algorithm in among]
    if folded not in known:
        raise UserError(f"unknown algorithm {name!r}: expected one of {', '.join(known)}{suggestion(folded, known)}")
    return ALGORITHMS[folded]


def option_docs(options: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and of its bases, for help and documentation."""
    found: dict[str, str] = {}
    for kind in reversed(options.__mro__):
        if is_dataclass(kind):
            (node,) = ast.parse(inspect.getsource(kind)).body
            assert isinstance(node, ast.ClassDef)
            for field, below in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    text = below.value if isinstance(below, ast.Expr) else None
                    if isinstance(text, ast.Constant):
                        found[field.target.id] = " ".join(str(text.value).split())
    return found
