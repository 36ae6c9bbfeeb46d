"""Linear systems of a policy in an MDP.

A `Chain` is an MDP with one weight for each state and action. With the policy as weights it is the Markov chain of that
policy; with w(s, a) = b(a|s) ρ(s, a) it is the chain of importance ratios. Small chains are solved by dense factorisation,
large ones by sparse iteration; both must leave a small residual or raise.

Krylov iteration comes first: it needs the least memory and mostly the least time. Where it stalls and `step` is a
contraction (γ well below one), plain iteration surely converges. Where `step` barely contracts (γ = 1, or near), the Krylov
iteration is preconditioned by sparse factors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP, row_sums
from vpac.errors import UserError
from vpac.typing import BoolArray, FloatArray

KRYLOV_STEPS, KRYLOV_STARTS = 500, 4
"""Most steps of a Krylov iteration, and restarts after a breakdown."""
PLAIN_STEPS = 5000
"""A system that this many plain iterations surely solve is not factorised."""
WHOLE_FACTORS = 20_000
"""Most states for which sparse factors are kept whole; beyond, small entries are dropped to bound their memory."""

Solver = Callable[[FloatArray], FloatArray]


def solve_iteratively(step: Any, source: FloatArray, tolerance: float) -> FloatArray:
    """x = source + step · x for a CSR matrix. Aims at a residual below `tolerance` · max |x|; the caller must check it.

    Raises a `RuntimeError` if 1 − step has to be factorised and is singular.
    """
    with np.errstate(all="ignore"):
        x, good = _krylov(step, source, tolerance, np.copy)
        if good:
            return x
        entries = np.abs(step)
        rate = min(float(entries.sum(axis=0).max()), float(entries.sum(axis=1).max()))
        if rate < 1.0 and rate**PLAIN_STEPS <= tolerance:
            better = _sup(x - step @ x - source) < _sup(source)
            return _plain(step, source, x if better else source, tolerance)
        return _krylov(step, source, tolerance, sparse_factors(step))[0]


def _krylov(step: Any, source: FloatArray, tolerance: float, precondition: Solver) -> tuple[FloatArray, bool]:
    """BiCGSTAB (van der Vorst, 1992), restarted after a breakdown; also returns whether it converged."""
    x, left, arrived = np.zeros_like(source), KRYLOV_STEPS, False
    for _ in range(KRYLOV_STARTS):
        left -= _bicgstab(step, source, x, tolerance, left, precondition)
        arrived = _sup(x - step @ x - source) <= tolerance * _sup(x)
        if arrived or left <= 0:
            break
    return x, arrived


def _bicgstab(step: Any, source: FloatArray, x: FloatArray, tolerance: float, limit: int, precondition: Solver) -> int:
    """Improve x in place until it converges, the method breaks down, or `limit`; returns the number of steps.

    Not `scipy.sparse.linalg.bicgstab`: that stops at a breakdown, and its dot products wait for the threads of BLAS, many times
    longer than they compute if another process uses one of the cores.
    """
    residual = source - x + step @ x
    shadow, direction = residual.copy(), residual.copy()
    overlap, size = _dot(shadow, residual), np.abs(shadow).sum()
    taken = 0
    while taken < limit:
        taken += 1
        move = precondition(direction)
        change = move - step @ move
        alpha = overlap / _dot(shadow, change)
        if not np.isfinite(alpha):
            break
        residual -= alpha * change
        x += np.multiply(move, alpha, out=move)

        move = precondition(residual)
        turn = move - step @ move
        omega = _dot(turn, residual) / _dot(turn, turn)
        if not np.isfinite(omega):
            break
        x += np.multiply(move, omega, out=move)
        residual -= np.multiply(turn, omega, out=turn)

        before, overlap, gap = overlap, _dot(shadow, residual), _sup(residual)
        # Breakdown: `shadow` has drifted from the residual, as happens when values travel away from a goal (or NaN).
        if gap <= 0.1 * tolerance * _sup(x) or not abs(overlap) > 1e-18 * size * gap:
            break
        change *= omega
        direction -= change
        direction *= overlap / before * alpha / omega
        direction += residual
    return taken


def _plain(step: Any, source: FloatArray, x: FloatArray, tolerance: float) -> FloatArray:
    """Iterate x ← source + step · x: each time the error shrinks by at least the norm of `step`."""
    for count in range(1, 2 * PLAIN_STEPS + 1):
        before, x = x, step @ x
        x += source
        if count % 20 == 0 and _sup(x - before) <= 0.1 * tolerance * _sup(x):
            break
    return x


def sparse_factors(step: Any) -> Solver:
    """y ↦ (1 − step)⁻¹ y by sparse factors: exact for few states, nearly so for many."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import spilu, splu

    system = (eye_array(step.shape[0], format="csr") - step).tocsc()
    # The diagonal dominates: no pivoting is needed, so the ordering can minimise fill-in.
    order: dict[str, Any] = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
    order["options"] = {"SymmetricMode": True}
    if step.shape[0] <= WHOLE_FACTORS:
        return splu(system, **order).solve
    return spilu(system, drop_tol=1e-4, fill_factor=20, **order).solve


def _dot(a: FloatArray, b: FloatArray) -> np.float64:
    return np.float64(np.einsum("i,i->", a, b))


def _sup(x: FloatArray) -> float:
    return max(float(x.max()), -float(x.min()))


DENSE_STATES = 1500
"""Most states for which a system is solved by dense factorisation."""
RESIDUAL, RESIDUAL_AIM = 1e-10, 1e-13
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
    """Σ_s' P(s'|s, a) values(s'): the expectation over the next state, [..., S, A]."""
    flat = values.reshape(-1, mdp.n_states)
    means = mdp.transition_matrix @ flat[0] if len(flat) == 1 else (mdp.transition_matrix @ flat.T).T
    return np.asarray(means.reshape(*values.shape, mdp.n_actions), np.float64)


class Chain:
    """The matrix P_w(s, s') = Σ_a w(s, a) P(s'|s, a), for weights w of shape [..., S, A], and solutions with it."""

    def __init__(self, mdp: FiniteMDP, weights: FloatArray, sparse: bool | None = None) -> None:
        self.mdp, self.weights = mdp, weights
        self._systems: dict[tuple[float, bytes], _System] = {}
        self.sparse = mdp.n_states > DENSE_STATES if sparse is None else sparse
        if self.sparse and weights.ndim > 2:
            raise UserError(f"a batch of policies needs a process of at most {DENSE_STATES} states")

    @cached_property
    def matrix(self) -> Any:
        """P_w: an array [..., S, S], or a sparse matrix if the chain is large."""
        n, rows = self.mdp.n_states, self.mdp.n_states * self.mdp.n_actions
        if self.sparse:
            from scipy.sparse import csr_array

            # Row s holds the weights of the actions of state s, in their positions among the rows of P.
            columns = np.arange(rows, dtype=np.int32), np.arange(0, rows + 1, self.mdp.n_actions, dtype=np.int32)
            matrix = csr_array((self.weights.reshape(-1), *columns), shape=(n, rows)) @ self.mdp.transition_matrix
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

    def inverse(self, discount: float) -> FloatArray:
        """(1 − discount · P_w)⁻¹ of a small chain, by the factors that its solutions have."""
        from scipy.linalg.lapack import dgetri

        system = self._system(discount, None)
        assert isinstance(system, _Dense)
        factors, pivots, _ = system.factors
        found, singular = dgetri(factors, pivots, lwork=64 * len(factors))  # room for blocks of 64 columns
        if singular:
            raise OracleError("the linear system is singular: its solution does not exist or is not unique")
        return np.asarray(found, np.float64)

    def _system(self, discount: float, kept: BoolArray | None) -> _System:
        some = kept is not None and not kept.all()
        place = discount, kept.tobytes() if kept is not None and some else b""
        if place not in self._systems:
            matrix = self.matrix
            if kept is not None and some:
                matrix = matrix.multiply(kept[:, None]).tocsr() if self.sparse else matrix * kept[..., None]
            self._systems[place] = (_Sparse if self.sparse else _Dense)(discount, matrix)
        return self._systems[place]

    def _solve(self, discount: float, source: FloatArray, transpose: bool, kept: BoolArray | None) -> FloatArray:
        system = self._system(discount, kept)
        x, gap = system.solve(source, transpose)
        if discount == 1.0 and kept is not None:
            # The error is (1 − P)⁻¹ gap, and (1 − P)⁻¹ adds up to the length of an episode from each state.
            steps, off = system.episode_length
            error = steps.max() * (np.abs(gap).sum(axis=-1) if transpose else np.abs(gap).max(axis=-1))
            if not (np.abs(off).max() < 0.5 and (error <= UNDISCOUNTED_ERROR * np.abs(x).max(axis=-1)).all()):
                long = "episodes, or the ratios along them, grow too long to be computed"
                raise OracleError(f"with gamma = 1 {long}; use gamma below 1")
        return x


class _System:
    """1 − discount · matrix, to be solved for several sources."""

    def __init__(self, discount: float, matrix: Any) -> None:
        self.discount, self.matrix = discount, matrix

    @cached_property
    def episode_length(self) -> tuple[FloatArray, FloatArray]:
        """The solution for a source of ones, and its gap."""
        return self.solve(np.ones(self.matrix.shape[:-1]), transpose=False)

    def solve(self, source: FloatArray, transpose: bool) -> tuple[FloatArray, FloatArray]:
        """The solution and the gap that it leaves."""
        raise NotImplementedError


class _Dense(_System):
    """An array [..., S, S]; a single one is factorised once for all its solutions."""

    @cached_property
    def system(self) -> FloatArray:
        system = -self.discount * self.matrix
        np.einsum("...ii->...i", system)[...] += 1.0  # the diagonal, in place
        return np.asarray(system, np.float64)

    @cached_property
    def factors(self) -> Any:
        from scipy.linalg.lapack import dgetrf

        return dgetrf(self.system)

    def solve(self, source: FloatArray, transpose: bool) -> tuple[FloatArray, FloatArray]:
        system = np.swapaxes(self.system, -1, -2) if transpose else self.system
        if system.ndim == 2:
            from scipy.linalg.lapack import dgetrs

            factors, pivots, singular = self.factors
            x = dgetrs(factors, pivots, source, trans=int(transpose))[0] if not singular else None
        else:
            try:
                x = np.asarray(np.linalg.solve(system, source[..., None]), np.float64)[..., 0]
            except np.linalg.LinAlgError:
                x = None
        if x is None:
            raise OracleError("the linear system is singular: its solution does not exist or is not unique")
        return _checked(x, (system @ x[..., None])[..., 0] - source)


class _Sparse(_System):
    """A sparse matrix, solved by iteration."""

    @cached_property
    def forward(self) -> Any:
        return self.discount * self.matrix

    @cached_property
    def backward(self) -> Any:
        return self.forward.T.tocsr()

    def solve(self, source: FloatArray, transpose: bool) -> tuple[FloatArray, FloatArray]:
        step = self.backward if transpose else self.forward
        try:
            x = solve_iteratively(step, source, RESIDUAL_AIM)
        except RuntimeError as error:
            raise OracleError(f"the linear system is singular: {error}") from None
        return _checked(x, x - step @ x - source)


def _checked(x: FloatArray, gap: FloatArray) -> tuple[FloatArray, FloatArray]:
    """x and its gap in the equation, which has to be small. NaN is not small."""
    scale, widest = np.abs(x).max(axis=-1), np.abs(gap).max(axis=-1)
    if not (widest <= RESIDUAL * scale).all():
        found = f"leaves a residual of {np.max(widest):.1e}" if np.isfinite(x).all() else "is not finite"
        raise OracleError(
            f"the linear system is too near to singular: its solution {found}, "
            f"expected below {RESIDUAL:g} of its largest entry"
        )
    return x, gap
