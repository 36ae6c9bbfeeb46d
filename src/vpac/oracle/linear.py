"""The linear algebra of a policy on a process.

A `Chain` is a process seen through one weight for each state and action. With the policy as weights it is the Markov
chain of that policy; with w(s, a) = b(a|s) ρ(s, a) it is the chain of ratios that off-policy learning walks along.
Small chains are solved by dense factorisation, large ones by sparse iteration; both must leave a small residual or
raise.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.rows import row_sums
from vpac.errors import UserError
from vpac.oracle.sparse import solve_iteratively
from vpac.typing import BoolArray, FloatArray

__all__ = ["Chain", "OracleError", "backup", "look_ahead"]

DENSE_STATES = 1500
"""Up to this many states a system is solved by dense factorisation."""
RESIDUAL, AIM = 1e-10, 1e-13
"""The largest relative residual that a solution may have, and the one that iterations aim at.

A residual may hide an error larger by 1 / (1 − γ), or by the length of an episode if γ = 1: hence the higher aim."""
UNDISCOUNTED_ERROR = 1e-6
"""The largest relative error that a solution with γ = 1 may have."""


class OracleError(UserError):
    """The exact answer does not exist, or cannot be computed to the promised accuracy."""


def backup(mdp: FiniteMDP, entries: FloatArray) -> FloatArray:
    """Σ_s' P(s'|s, a) · entries: the mean over the transitions of each state and action, [..., S, A]."""
    weighed, rows = mdp.probability * entries, mdp.n_states * mdp.n_actions
    sums = np.bincount(mdp.row, weighed, rows) if weighed.ndim == 1 else row_sums(mdp.indptr, weighed)
    return np.asarray(sums.reshape(*weighed.shape[:-1], mdp.n_states, mdp.n_actions), np.float64)


def look_ahead(mdp: FiniteMDP, values: FloatArray) -> FloatArray:
    """Σ_s' P(s'|s, a) values(s'): what to expect of the next state, [..., S, A]."""
    flat = values.reshape(-1, mdp.n_states)
    means = mdp.transition_matrix @ flat[0] if len(flat) == 1 else (mdp.transition_matrix @ flat.T).T
    return np.asarray(means.reshape(*values.shape, mdp.n_actions), np.float64)


class Chain:
    """The matrix P_w(s, s') = Σ_a w(s, a) P(s'|s, a), for weights w of shape [..., S, A], and solutions with it."""

    def __init__(self, mdp: FiniteMDP, weights: FloatArray, sparse: bool | None = None) -> None:
        self.mdp, self.weights = mdp, weights
        self.sparse = mdp.n_states > DENSE_STATES if sparse is None else sparse
        if self.sparse and weights.ndim > 2:
            raise UserError(f"a batch of policies needs a process of at most {DENSE_STATES} states")

    @cached_property
    def matrix(self) -> Any:
        """P_w: an array [..., S, S], or a sparse matrix if the chain is large."""
        n, rows = self.mdp.n_states, self.mdp.n_states * self.mdp.n_actions
        if self.sparse:
            from scipy.sparse import csr_array

            # Row s holds the weights of the actions of state s, at their places among the rows of P.
            places = np.arange(rows, dtype=np.int32), np.arange(0, rows + 1, self.mdp.n_actions, dtype=np.int32)
            matrix = csr_array((self.weights.reshape(-1), *places), shape=(n, rows)) @ self.mdp.transition_matrix
            matrix.sort_indices()
            return matrix
        entries = self.weights.reshape(-1, rows)[:, self.mdp.row] * self.mdp.probability
        cell = self.mdp.row // self.mdp.n_actions * n + self.mdp.successor
        matrices = np.empty((len(entries), n * n))
        for matrix, one in zip(matrices, entries, strict=True):
            matrix[:] = np.bincount(cell, one, n * n)
        return matrices.reshape(*self.weights.shape[:-2], n, n)

    def accumulate(self, discount: float, source: FloatArray, kept: BoolArray | None = None) -> FloatArray:
        """x = source + discount · P_w x: what is collected from each state on, among the states `kept`."""
        return self._solve(discount, source, transpose=False, kept=kept)

    def flow(self, discount: float, source: FloatArray, kept: BoolArray | None = None) -> FloatArray:
        """x = source + discount · P_wᵀ x: what arrives in each state, all steps added up."""
        return self._solve(discount, source, transpose=True, kept=kept)

    def push(self, mass: FloatArray, entries: FloatArray | float = 1.0) -> FloatArray:
        """Σ_{s,a} mass(s, a) P(s'|s, a) · entries: what one step carries into each state, [S]."""
        moved = mass.reshape(-1)[self.mdp.row] * self.mdp.probability * entries
        return np.asarray(np.bincount(self.mdp.successor, moved, self.mdp.n_states), np.float64)

    def _solve(self, discount: float, source: FloatArray, transpose: bool, kept: BoolArray | None) -> FloatArray:
        matrix = self.matrix
        if kept is not None and not kept.all():
            matrix = matrix.multiply(kept[:, None]).tocsr() if self.sparse else matrix * kept[..., None]
        solve = _solve_sparse if self.sparse else _solve_dense
        x, gap = solve(discount, _transposed(matrix) if transpose else matrix, source)
        if discount == 1.0 and kept is not None:
            # The error is (1 − P)⁻¹ gap, and (1 − P)⁻¹ adds up to the length of an episode from each state.
            steps, off = solve(1.0, matrix, np.ones(kept.shape))
            error = steps.max() * (np.abs(gap).sum(axis=-1) if transpose else np.abs(gap).max(axis=-1))
            if not (np.abs(off).max() < 0.5 and (error <= UNDISCOUNTED_ERROR * np.abs(x).max(axis=-1)).all()):
                raise OracleError(
                    "with gamma = 1 episodes, or the ratios along them, grow too long to be computed; use gamma below 1"
                )
        return x


def _transposed(matrix: Any) -> Any:
    return np.swapaxes(matrix, -1, -2) if isinstance(matrix, np.ndarray) else matrix.T.tocsr()


def _solve_dense(discount: float, matrix: FloatArray, source: FloatArray) -> tuple[FloatArray, FloatArray]:
    system = -discount * matrix
    np.einsum("...ii->...i", system)[...] += 1.0  # the diagonal, in place
    try:
        x = np.asarray(np.linalg.solve(system, source[..., None]), np.float64)
    except np.linalg.LinAlgError:
        raise OracleError("the linear system is singular: its solution does not exist or is not unique") from None
    return _checked(x[..., 0], (system @ x)[..., 0] - source)


def _solve_sparse(discount: float, matrix: Any, source: FloatArray) -> tuple[FloatArray, FloatArray]:
    step = discount * matrix
    try:
        x = solve_iteratively(step, source, AIM)
    except RuntimeError as error:
        raise OracleError(f"the linear system is singular: {error}") from None
    return _checked(x, x - step @ x - source)


def _checked(x: FloatArray, gap: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both, if x leaves a small gap in its equation. NaN is not small."""
    scale, widest = np.abs(x).max(axis=-1), np.abs(gap).max(axis=-1)
    if not (widest <= RESIDUAL * scale).all():
        found = f"leaves a residual of {np.max(widest):.1e}" if np.isfinite(x).all() else "is not finite"
        raise OracleError(
            f"the linear system is too near to singular: its solution {found}, "
            f"expected below {RESIDUAL:g} of its largest entry"
        )
    return x, gap
