"""The linear algebra of a policy on a process.

A `Chain` is a process seen through one weight for each state and action. With the policy as weights it is the Markov chain
of that policy; with w(s, a) = b(a|s) ρ(s, a) it is the chain of ratios that off-policy learning walks along. Small chains
are solved by dense factorisation, large ones by sparse iteration; both must leave a small residual or raise.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.rows import row_sums
from vpac.errors import UserError
from vpac.typing import BoolArray, FloatArray

__all__ = ["Chain", "OracleError", "backup"]

DENSE_STATES = 1500
"""Up to this many states a system is solved by dense factorisation."""
RESIDUAL = 1e-10
"""The largest relative residual that a solution may have."""


class OracleError(UserError):
    """The exact answer does not exist, or cannot be computed to the promised accuracy."""


def backup(mdp: FiniteMDP, entries: FloatArray) -> FloatArray:
    """Σ_s' P(s'|s, a) · entries: the mean over the transitions of each state and action, [..., S, A]."""
    sums = row_sums(mdp.indptr, mdp.probability * entries)
    return sums.reshape(*sums.shape[:-1], mdp.n_states, mdp.n_actions)


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
        n = self.mdp.n_states
        flat = self.weights.reshape(*self.weights.shape[:-2], n * self.mdp.n_actions)
        entries = flat[..., self.mdp.row] * self.mdp.probability
        state = self.mdp.row // self.mdp.n_actions
        if self.sparse:
            from scipy.sparse import coo_array

            return coo_array((entries, (state, self.mdp.successor)), shape=(n, n)).tocsr()
        cell = state * n + self.mdp.successor
        if entries.ndim == 1:
            return np.bincount(cell, entries, n * n).reshape(n, n)
        stacked = entries.reshape(-1, entries.shape[-1])
        matrices = np.stack([np.bincount(cell, one, n * n) for one in stacked])
        return matrices.reshape(*entries.shape[:-1], n, n)

    def accumulate(self, discount: float, source: FloatArray, kept: BoolArray | None = None) -> FloatArray:
        """x = source + discount · P_w x: what is collected from each state on. `kept` limits the chain to some states."""
        return self._solve(discount, source, transpose=False, kept=kept)

    def flow(self, discount: float, source: FloatArray, kept: BoolArray | None = None) -> FloatArray:
        """x = source + discount · P_wᵀ x: what arrives in each state, all steps added up."""
        return self._solve(discount, source, transpose=True, kept=kept)

    def push(self, mass: FloatArray, entries: FloatArray | float = 1.0) -> FloatArray:
        """Σ_{s,a} mass(s, a) P(s'|s, a) · entries: what one step carries into each state, [S]."""
        moved = mass.reshape(-1)[self.mdp.row] * self.mdp.probability * entries
        return np.bincount(self.mdp.successor, moved, self.mdp.n_states)

    def _solve(self, discount: float, source: FloatArray, transpose: bool, kept: BoolArray | None) -> FloatArray:
        matrix = self.matrix
        if kept is not None and not kept.all():
            matrix = matrix.multiply(kept[:, None]).tocsr() if self.sparse else matrix * kept[..., None]
        if self.sparse:
            return _solve_sparse(discount, matrix.T.tocsr() if transpose else matrix, source)
        return _solve_dense(discount, np.swapaxes(matrix, -1, -2) if transpose else matrix, source)


def _solve_dense(discount: float, matrix: FloatArray, source: FloatArray) -> FloatArray:
    try:
        x = np.linalg.solve(np.eye(matrix.shape[-1]) - discount * matrix, source[..., None])[..., 0]
    except np.linalg.LinAlgError:
        raise OracleError("the linear system is singular: its solution does not exist or is not unique") from None
    _check(x, source + discount * (matrix @ x[..., None])[..., 0])
    return np.asarray(x, np.float64)


def _solve_sparse(discount: float, matrix: Any, source: FloatArray) -> FloatArray:
    """Krylov iteration first, direct factorisation if that stalls."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import bicgstab, splu

    system = (eye_array(matrix.shape[0], format="csr") - discount * matrix).tocsr()
    x, failed = bicgstab(system, source, rtol=RESIDUAL / 100, atol=0.0, maxiter=2000)
    if failed or _residual(x, source + discount * (matrix @ x)) > RESIDUAL:
        try:
            x = splu(system.tocsc()).solve(source)
        except RuntimeError as error:
            raise OracleError(f"the linear system is singular: {error}") from None
    _check(x, source + discount * (matrix @ x))
    return np.asarray(x, np.float64)


def _residual(x: FloatArray, again: FloatArray) -> float:
    """How far x is from the right-hand side it should equal, relative to x."""
    scale = np.abs(x).max(axis=-1) if x.size else np.zeros(())
    gap = np.abs(x - again).max(axis=-1) if x.size else np.zeros(())
    return float(np.max(gap / np.where(scale > 0.0, scale, 1.0)))


def _check(x: FloatArray, again: FloatArray) -> None:
    if not np.isfinite(x).all() or (worst := _residual(x, again)) > RESIDUAL:
        found = "is not finite" if not np.isfinite(x).all() else f"leaves a relative residual of {worst:.1e}"
        raise OracleError(
            f"the linear system is too near to singular: its solution {found}, expected below {RESIDUAL:g}"
        )
