"""The linear algebra of a policy on a process.

A `Chain` is a process seen through one weight for each state and action. With the policy as weights it is the Markov
chain of that policy; with w(s, a) = b(a|s) ρ(s, a) it is the chain of ratios that off-policy learning walks along. Small
chains are solved by dense factorisation, large ones by sparse iteration; both must leave a small residual or raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.typing import BoolArray, FloatArray

__all__ = ["Chain", "OracleError", "backup"]

DENSE_STATES = 1500
"""Up to this many states a system is solved by dense factorisation."""
RESIDUAL = 1e-10
"""The largest relative residual that a solution may have; iterations aim at a tenth of it."""
KRYLOV_STEPS, KRYLOV_STARTS = 500, 4
"""How long a Krylov iteration is given, and how often it may break down."""
PLAIN_STEPS = 5000
"""A system that this many plain iterations are sure to solve is not factorised."""
WHOLE_FACTORS = 20_000
"""Up to this many states sparse factors are kept whole; beyond, small entries are dropped to bound their memory."""


class OracleError(UserError):
    """The exact answer does not exist, or cannot be computed to the promised accuracy."""


def backup(mdp: FiniteMDP, entries: FloatArray) -> FloatArray:
    """Σ_s' P(s'|s, a) · entries: the mean over the transitions of each state and action, [..., S, A]."""
    filled, first = mdp.filled_rows
    sums = np.zeros((*entries.shape[:-1], mdp.n_states * mdp.n_actions))
    sums[..., filled] = np.add.reduceat(mdp.probability * entries, first, axis=-1)
    return sums.reshape(*entries.shape[:-1], mdp.n_states, mdp.n_actions)


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
        if self.sparse:
            return self._sparse_matrix()
        flat = self.weights.reshape(-1, n * self.mdp.n_actions)
        entries = flat[:, self.mdp.row] * self.mdp.probability
        cell = self.mdp.row // self.mdp.n_actions * n + self.mdp.successor
        matrices = np.empty((len(flat), n * n))
        for matrix, one in zip(matrices, entries, strict=True):
            matrix[:] = np.bincount(cell, one, n * n)
        return matrices.reshape(*self.weights.shape[:-2], n, n)

    def _sparse_matrix(self) -> Any:
        """The transitions are sorted by state and action, so they are P as they stand, and P_w is a product with P.

        Indices of 32 bits: reading the matrix is what a product costs, and every index is one of S · A rows or a state.
        """
        from scipy.sparse import csr_array

        n, rows = self.mdp.n_states, self.mdp.n_states * self.mdp.n_actions
        successor, indptr = self.mdp.successor.astype(np.int32), self.mdp.indptr.astype(np.int32)
        transitions = csr_array((self.mdp.probability, successor, indptr), shape=(rows, n))
        own = np.arange(rows, dtype=np.int32), np.arange(0, rows + 1, self.mdp.n_actions, dtype=np.int32)
        matrix = csr_array((self.weights.reshape(-1), *own), shape=(n, rows)) @ transitions
        matrix.sort_indices()
        return matrix

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
    system = -discount * matrix
    np.einsum("...ii->...i", system)[...] += 1.0  # the diagonal, in place
    with np.errstate(all="ignore"):
        try:
            x = np.linalg.solve(system, source[..., None])
        except np.linalg.LinAlgError:
            raise OracleError("the linear system is singular: its solution does not exist or is not unique") from None
        worst = _relative((system @ x)[..., 0] - source, x[..., 0])
    return _checked(x[..., 0], worst)


def _solve_sparse(discount: float, matrix: Any, source: FloatArray) -> FloatArray:
    """Krylov iteration, which needs least memory and mostly least time. Where it fails: plain iteration, which always
    converges and takes about log(RESIDUAL) / log(discount) steps; where those are too many, help by factorisation.
    """
    step = discount * matrix
    with np.errstate(all="ignore"):
        x, worst = _krylov(step, source)
        if not worst <= RESIDUAL:
            sizes = np.abs(step)
            rate = min(sizes.sum(axis=0).max(), sizes.sum(axis=1).max())
            if rate < 1.0 and math.log(RESIDUAL) / math.log(rate) <= PLAIN_STEPS:
                x, worst = _plain(step, source)
            else:
                x, worst = _krylov(step, source, _factors(step))
    return _checked(x, worst)


def _krylov(
    step: Any, source: FloatArray, precondition: Callable[[FloatArray], FloatArray] | None = None
) -> tuple[FloatArray, float]:
    """Solve x = source + step · x by BiCGSTAB (van der Vorst, 1992), and begin anew where that breaks down."""
    x, left = np.zeros_like(source), KRYLOV_STEPS
    for _ in range(KRYLOV_STARTS):
        left -= _bicgstab(step, source, x, left, precondition or np.copy)
        worst = _relative(x - step @ x - source, x)
        if worst <= RESIDUAL or left <= 0 or not np.isfinite(worst):
            break
    return x, worst


def _bicgstab(
    step: Any, source: FloatArray, x: FloatArray, limit: int, precondition: Callable[[FloatArray], FloatArray]
) -> int:
    """Improve x in place until it is good or the method breaks down; returns the steps taken.

    Not `scipy.sparse.linalg.bicgstab`: that takes an unlucky start for a failure, and its dot products wait for BLAS
    threads, many times longer than they compute where another process holds a core.
    """
    residual = source - x + step @ x
    shadow, direction = residual.copy(), residual.copy()
    product, size = _dot(shadow, residual), float(np.abs(shadow).sum())
    for count in range(1, limit + 1):
        towards = precondition(direction)
        moved = towards - step @ towards
        alpha = product / _dot(shadow, moved)
        residual -= alpha * moved
        x += np.multiply(towards, alpha, out=towards)
        towards = precondition(residual)
        turned = towards - step @ towards
        omega = _dot(turned, residual) / _dot(turned, turned)
        x += np.multiply(towards, omega, out=towards)
        residual -= np.multiply(turned, omega, out=turned)
        before, product = product, _dot(shadow, residual)
        # `shadow` no longer sees what is left, as when values travel away from a goal; or all is done; or NaN.
        if not abs(product) > 1e-18 * size * _sup(residual) or _sup(residual) <= RESIDUAL / 10.0 * _sup(x):
            break
        moved *= omega
        direction -= moved
        direction *= product / before * alpha / omega
        direction += residual
    return count


def _plain(step: Any, source: FloatArray) -> tuple[FloatArray, float]:
    """Solve x = source + step · x by repeating it: each step shrinks the error by the norm of `step`."""
    x = source
    for count in range(1, 2 * PLAIN_STEPS + 1):
        before, x = x, step @ x
        x += source
        if count % 20 == 0 and _relative(x - before, x) <= RESIDUAL / 10.0:
            break
    return x, _relative(x - step @ x - source, x)


def _factors(step: Any) -> Callable[[FloatArray], FloatArray]:
    """Solve (1 − step) x = y by sparse factors: exactly for few states, nearly so for many."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import spilu, splu

    system = (eye_array(step.shape[0], format="csr") - step).tocsc()
    # Its diagonal dominates, so that no pivoting is needed and the order may be the one with the least fill.
    order: dict[str, Any] = {
        "permc_spec": "MMD_AT_PLUS_A",
        "diag_pivot_thresh": 0.0,
        "options": {"SymmetricMode": True},
    }
    try:
        if step.shape[0] <= WHOLE_FACTORS:
            return splu(system, **order).solve
        return spilu(system, drop_tol=1e-4, fill_factor=20, **order).solve
    except RuntimeError as error:
        raise OracleError(f"the linear system is singular: {error}") from None


def _dot(a: FloatArray, b: FloatArray) -> np.float64:
    return np.float64(np.einsum("i,i->", a, b))  # no BLAS: see _bicgstab


def _sup(x: FloatArray) -> float:
    return max(float(x.max()), -float(x.min()))


def _relative(gap: FloatArray, x: FloatArray) -> float:
    """The largest entry of `gap` relative to the largest of x, the worst of a batch."""
    scale = np.abs(x).max(axis=-1)
    return float((np.abs(gap).max(axis=-1) / np.where(scale > 0.0, scale, 1.0)).max())


def _checked(x: FloatArray, residual: float) -> FloatArray:
    if not residual <= RESIDUAL:
        found = f"leaves a relative residual of {residual:.1e}" if np.isfinite(x).all() else "is not finite"
        raise OracleError(
            f"the linear system is too near to singular: its solution {found}, expected below {RESIDUAL:g}"
        )
    return x
