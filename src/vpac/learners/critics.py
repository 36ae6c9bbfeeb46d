"""The critics' TD errors: value, and variance (direct, VPAC) or second moment (indirect, VAAC_TD)."""

from __future__ import annotations

from vpac.learners.compiled import inlined
from vpac.learners.settings import DIRECT, EXPECTED, Settings
from vpac.learners.softmax import value
from vpac.typing import FloatArray, IntArray

__all__ = ["expected_errors", "sampled_errors", "td_errors"]


@inlined
def td_errors(
    settings: Settings,
    w: FloatArray,
    z: FloatArray,
    reward: float,
    terminated: bool,
    q: float,
    s: float,
    there: IntArray,
    next_action: int,
    rho_next: float,
    policy_next: FloatArray,
) -> tuple[float, float]:
    """δ and δ̄ of a transition; nothing is bootstrapped after a termination."""
    if terminated:
        return sampled_errors(settings, reward, q, s, 0.0, 0.0, 1.0)
    if settings.on_policy or settings.ratios != EXPECTED:
        q_next, s_next = value(w, there, next_action), value(z, there, next_action)
        return sampled_errors(settings, reward, q, s, q_next, s_next, rho_next)
    return expected_errors(settings, w, z, reward, q, s, there, policy_next)


@inlined
def sampled_errors(
    settings: Settings, reward: float, q: float, s: float, q_next: float, s_next: float, rho: float
) -> tuple[float, float]:
    """δ = R + γ ρ' Q' − Q, and

    direct    δ̄ = δ² + γ² ρ'² σ' − σ                        (Algorithm 1, line 11; Appendix D, line 14)
    indirect  δ̄ = R² + 2 γ R ρ' Q' + γ² ρ'² M' − M          (Algorithm 3, line 13, its slip of the pen mended)
    """
    ahead = settings.gamma * rho
    delta = reward + ahead * q_next - q
    if settings.critic == DIRECT:
        return delta, delta * delta + ahead * ahead * s_next - s
    return delta, reward * reward + 2.0 * reward * ahead * q_next + ahead * ahead * s_next - s


@inlined
def expected_errors(
    settings: Settings,
    w: FloatArray,
    z: FloatArray,
    reward: float,
    q: float,
    s: float,
    there: IntArray,
    policy_next: FloatArray,
) -> tuple[float, float]:
    """The same averaged over the target policy's next action: no ratio is needed, whatever the behaviour policy."""
    delta = delta_bar = 0.0
    for action in range(len(policy_next)):
        q_next, s_next = value(w, there, action), value(z, there, action)
        one, one_bar = sampled_errors(settings, reward, q, s, q_next, s_next, 1.0)
        delta += policy_next[action] * one
        delta_bar += policy_next[action] * one_bar
    return delta, delta_bar
