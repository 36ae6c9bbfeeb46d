"""Solutions of x = source + step · x for large sparse matrices, without ever filling them in.

Krylov iteration comes first: it needs the least memory and mostly the least time. Where it stalls and `step` is a
contraction (γ well below one), plain iteration is sure to arrive. Where `step` barely contracts (γ = 1, or near), the
Krylov iteration is helped by sparse factors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vpac.typing import FloatArray

__all__ = ["solve_iteratively"]

KRYLOV_STEPS, KRYLOV_STARTS = 500, 4
"""How long a Krylov iteration is given, and how often it may begin anew after breaking down."""
PLAIN_STEPS = 5000
"""A system that this many plain iterations are sure to solve is not factorised."""
WHOLE_FACTORS = 20_000
"""Up to this many states sparse factors are kept whole; beyond, small entries are dropped to bound their memory."""

Solve = Callable[[FloatArray], FloatArray]


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
        return _krylov(step, source, tolerance, _factors(step))[0]


def _krylov(step: Any, source: FloatArray, tolerance: float, precondition: Solve) -> tuple[FloatArray, bool]:
    """BiCGSTAB (van der Vorst, 1992), begun anew where it breaks down; also whether it arrived."""
    x, left, arrived = np.zeros_like(source), KRYLOV_STEPS, False
    for _ in range(KRYLOV_STARTS):
        left -= _bicgstab(step, source, x, tolerance, left, precondition)
        arrived = _sup(x - step @ x - source) <= tolerance * _sup(x)
        if arrived or left <= 0:
            break
    return x, arrived


def _bicgstab(step: Any, source: FloatArray, x: FloatArray, tolerance: float, limit: int, precondition: Solve) -> int:
    """Improve x in place until it is good, or the method breaks down, or `limit`; returns the number of steps.

    Not `scipy.sparse.linalg.bicgstab`: that gives up on breaking down, and its dot products wait for the threads of
    BLAS, many times longer than they compute wherever another process holds one of the cores.
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
        # Broken down: `shadow` has lost sight of the residual, as happens when values travel away from a goal (or NaN).
        if gap <= 0.1 * tolerance * _sup(x) or not abs(overlap) > 1e-18 * size * gap:
            break
        change *= omega
        direction -= change
        direction *= overlap / before * alpha / omega
        direction += residual
    return taken


def _plain(step: Any, source: FloatArray, x: FloatArray, tolerance: float) -> FloatArray:
    """x ← source + step · x again and again: each time the error shrinks by at least the norm of `step`."""
    for count in range(1, 2 * PLAIN_STEPS + 1):
        before, x = x, step @ x
        x += source
        if count % 20 == 0 and _sup(x - before) <= 0.1 * tolerance * _sup(x):
            break
    return x


def _factors(step: Any) -> Solve:
    """y ↦ (1 − step)⁻¹ y by sparse factors: exact for few states, nearly so for many."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import spilu, splu

    system = (eye_array(step.shape[0], format="csr") - step).tocsc()
    # The diagonal dominates: no pivoting is needed, so that the order may be the one that fills in least.
    order: dict[str, Any] = {
        "permc_spec": "MMD_AT_PLUS_A",
        "diag_pivot_thresh": 0.0,
        "options": {"SymmetricMode": True},
    }
    if step.shape[0] <= WHOLE_FACTORS:
        return splu(system, **order).solve
    return spilu(system, drop_tol=1e-4, fill_factor=20, **order).solve


def _dot(a: FloatArray, b: FloatArray) -> np.float64:
    return np.float64(np.einsum("i,i->", a, b))


def _sup(x: FloatArray) -> float:
    return max(float(x.max()), -float(x.min()))
