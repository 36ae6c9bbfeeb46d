"""The paper's algorithms, from top to bottom: AC, and what VPAC, off-policy VPAC, VAAC_TD and VAAC add to it.

`learn_step` is one turn of the loop of Algorithms 1 (VPAC) and 3 (VAAC_TD) and of Appendix D (off-policy VPAC);
`learn_from_episode` is Algorithm 2 (VAAC). `loop.py` calls them. Comments give the lines: "line 10 | D 13 | 3: 12" is line 10
of Algorithm 1, line 13 of Appendix D and line 12 of Algorithm 3. A "+" marks what is added to AC; with ψ = 0 each is AC.

q, v are Q̂(S,A) and V̂(S) = Σ_a π(a|S) Q̂(S,a), the latter zero without a baseline. s, s_mean are the same for the spread
critic: σ̂ (VPAC) or M̂ (VAAC). γ̄ = γ². The paper calls VAAC's price μ; here it is ψ.

The corrected forms are gradients, the published ones are not (docs/corrections.md). Errors in the paper's pseudo-code are
resolved in favour of its derivations:

- Algorithm 2 sums future rewards into Ḡ; the derivation needs those collected so far, Ḡ_t = Σ_{j<t} γ^{2j} R_{j+1}.
- Algorithm 2 exchanges α_w and α_z: α_w is the value critic's here.
- Algorithm 3's δ̄ lacks − M̂(S,A) and has Q̂(S,A) for Q̂(S',A'); it multiplies I_M by γ² before it adds I_M R to Ḡ.
- V(S_0) is the value of this episode's start, not one number for all starts.
- VAAC's episodes have no limit in the paper; here they have that of the others. A truncated episode is bootstrapped.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vpac.risk.measures.volatility import augmented
from vpac.tabular import arrays as codes
from vpac.tabular.arrays import LARGEST_NUMBER, EpisodeBuffer, Rates, Settings, Weights, Workspace
from vpac.tabular.kernel.generator import RngState, pick, uniform
from vpac.tabular.kernel.jit import inlined, shared
from vpac.tabular.kernel.softmax import add_score, greedy_action, mean_value, value
from vpac.typing import FloatArray, IntArray

# Behaviour policies b and the importance ratios ρ = π/b of their actions: A ~ b(·|S), lines 6 and 9


class Choice(NamedTuple):
    """An action and its ratios; on-policy every ratio is 1."""

    action: int
    rho: float = 1.0
    """The critics' ratio, clipped or not."""
    actor_rho: float = 1.0
    """The actor's ratio, clipped or not."""
    excess: float = 0.0
    """(π/b − 1)⁺, the part that clipping removes; its mean over b's actions is Σ_a (π(a|s) − b(a|s))⁺."""


@inlined
def choose(
    settings: Settings, table: FloatArray, theta: FloatArray, active: IntArray, policy: FloatArray,
    behaviour: FloatArray, rng: RngState,
) -> Choice:  # fmt: skip
    """A ~ π(·|S), or off-policy A ~ b(·|S) with its ratios."""
    if settings.on_policy:
        return Choice(pick(policy, rng), 1.0, 1.0, 0.0)
    if settings.behaviour == codes.UNIFORM:  # no search needed
        action = int(uniform(rng) * len(behaviour))
        behaviour[action] = 1.0 / len(behaviour)
    else:
        fill_behaviour(settings, table, theta, active, policy, behaviour)
        action = pick(behaviour, rng)
    return ratios(settings, policy, behaviour, action)


@inlined
def fill_behaviour(
    settings: Settings, table: FloatArray, theta: FloatArray, active: IntArray, policy: FloatArray, behaviour: FloatArray
) -> None:  # fmt: skip
    """Write b(a|s) into `behaviour`."""
    n_actions = len(behaviour)
    for action in range(n_actions):
        if settings.behaviour == codes.UNIFORM:
            behaviour[action] = 1.0 / n_actions
        elif settings.behaviour == codes.TABLE:
            behaviour[action] = table[active[0], action]
        elif settings.behaviour == codes.EPSILON_GREEDY:
            behaviour[action] = settings.epsilon / n_actions
        else:
            behaviour[action] = policy[action]
    if settings.behaviour == codes.EPSILON_GREEDY:
        behaviour[greedy_action(theta, active)] += 1.0 - settings.epsilon


@inlined
def ratios(settings: Settings, policy: FloatArray, behaviour: FloatArray, action: int) -> Choice:
    """An action with its ratios ρ = π/b, clipped at 1 if the settings say so."""
    if settings.on_policy:
        return Choice(action, 1.0, 1.0, 0.0)
    rho = policy[action] / behaviour[action]
    clipped = min(1.0, rho)
    critics = clipped if settings.ratios == codes.CLIPPED else rho
    return Choice(action, critics, clipped if settings.clip_actor else rho, rho - clipped)


# Arguments and state of the updates


class Transition(NamedTuple):
    """One step: S, A, R, S', A'. States are their active features."""

    state: IntArray
    """S."""
    policy: FloatArray
    """π(·|S)."""
    action: int
    """A."""
    reward: float
    """R."""
    terminated: bool
    """Whether S' is terminal: then nothing is bootstrapped."""
    next_state: IntArray
    """S'."""
    next_policy: FloatArray
    """π(·|S')."""
    next_choice: Choice
    """A' and its ratios ρ(S',A')."""


class StepSizes(NamedTuple):
    """ψ and the step sizes of an episode, the latter divided by the number of active features."""

    psi: float
    """ψ of the return's variance."""
    reward_psi: float
    """MVPI's ψ of the variance of the reward per step; one of the two is zero."""
    alpha_theta: float
    alpha_w: float
    alpha_z: float


class Trace(NamedTuple):
    """Traces of an episode. Every step makes a new tuple, which compiled code keeps in registers."""

    i_q: float
    """I_Q = γ^k."""
    i_sigma: float
    """I_σ = γ^{2k}."""
    collected: float
    """G_{0:k} = Σ_{j<k} γ^j R_{j+1}."""
    collected_bar: float
    """Ḡ_k = Σ_{j<k} γ^{2j} ρ_{0:j} R_{j+1}, which the published VAAC uses."""
    luck: float
    """D_k = Σ_{t<k} γ^t δ^V_t."""
    offset: float
    """V̂(S_0) − c with a baseline, −c without: c is the reference of `variance_of`."""
    value_0: float
    """V̂(S_0)."""
    rho: float
    """ρ_{0:k}, the actor's product of ratios (ρ_Q in Appendix D)."""
    t_bar: float
    """T̄_k = γ² ρ_k² T̄_{k−1}, T̄_0 = ρ_0 (I_σ ρ_σ in Appendix D)."""
    x: float
    """X_k = γ ρ_k (X_{k−1} + T̄_{k−1} δ_{k−1})."""
    first: bool
    """Whether k = 0."""


@inlined
def step_sizes(settings: Settings, rates: Rates, episode: int, n_active: int) -> StepSizes:
    """The step sizes of an episode."""
    psi, reward_psi = prices(settings, rates.psi[episode])
    alpha_theta, alpha_w = rates.alpha_theta[episode] / n_active, rates.alpha_w[episode] / n_active
    return StepSizes(psi, reward_psi, alpha_theta, alpha_w, rates.alpha_z[episode] / n_active)


@inlined
def prices(settings: Settings, psi: float) -> tuple[float, float]:
    """ψ as (ψ of the return's variance, ψ of the reward's variance): one of the two is zero."""
    if settings.volatility:
        return 0.0, psi
    return psi, 0.0


augment = inlined(augmented)
"""MVPI's reward, R − ψ R² + 2 ψ R y, from which AC learns."""


# Algorithm 1, lines 7 and 10–16; Appendix D, lines 7–10 and 13–23; Algorithm 3, lines 7–9 and 12–19


@inlined
def begin_episode(
    settings: Settings, weights: Weights, state: IntArray, policy: FloatArray, choice: Choice, alpha_mean: float
) -> Trace:
    """Ĵ ← Ĵ + α (V̂(S_0) − Ĵ), and the trace of the first step. MVPI stores its y in place of Ĵ."""
    state_value = mean_value(weights.w, state, policy)
    if not settings.volatility:
        weights.mean[0] += alpha_mean * (state_value - weights.mean[0])
    return begin(settings, value(weights.w, state, choice.action), state_value, weights.mean[0], choice)


@inlined
def begin(settings: Settings, action_value: float, state_value: float, mean: float, choice: Choice) -> Trace:
    """k = 0: I_Q ← 1, + I_σ ← 1, ρ_Q, ρ_σ ← ρ(S,A) (line 7 | D 7–10 | 2: 9, 16 | 3: 7–10, 16), and the reference c."""
    if settings.variance_of == codes.ACTION:
        reference = action_value
    elif settings.variance_of == codes.STATE:
        reference = state_value
    else:
        reference = mean
    offset = state_value - reference if settings.baseline else -reference
    return Trace(1.0, 1.0, 0.0, 0.0, 0.0, offset, state_value, choice.actor_rho, choice.rho, 0.0, True)


@inlined
def learn_step(
    settings: Settings, weights: Weights, ascent: FloatArray, trace: Trace, t: Transition, sizes: StepSizes
) -> tuple[int, Trace]:
    """One step of the critics, the actor and the trace.

    Returns GOOD, or the quantity that is not finite and was not learned, and the trace of the next step. `ascent` receives the
    actor's update: it is θ, or another array to collect the updates of a fixed policy.
    """
    w, z, alpha_w, alpha_z, n_active = weights.w, weights.z, sizes.alpha_w, sizes.alpha_z, len(t.state)
    q, s = value(w, t.state, t.action), value(z, t.state, t.action)
    delta, delta_bar = td_errors(settings, w, z, q, s, t)  # line 10, + line 11 | D 13, 14 | 3: 12, 13
    q_after, s_after = q + n_active * alpha_w * delta, s + n_active * alpha_z * delta_bar
    good = abs(q_after) + abs(s_after) < LARGEST_NUMBER
    if n_active > 1:  # large terms of a sum may cancel
        good = good and abs(alpha_w * delta) + abs(alpha_z * delta_bar) < LARGEST_NUMBER
    if not good:
        if not math.isfinite(t.reward):
            return codes.BAD_REWARD, trace
        return (codes.BAD_SPREAD if abs(q_after) + abs(alpha_w * delta) < LARGEST_NUMBER else codes.BAD_VALUE), trace
    delta_v = 0.0
    if settings.baseline and settings.form != codes.PUBLISHED:  # δ^V ← R + γ V̂(S') − V̂(S), of the corrected form
        bootstrap = 0.0 if t.terminated else settings.gamma * mean_value(w, t.next_state, t.next_policy)
        delta_v = t.reward + bootstrap - mean_value(w, t.state, t.policy)
    for index in range(n_active):
        feature, column = np.uint64(t.state[index]), np.uint64(t.action)
        w[feature, column] += alpha_w * delta  # line 12 | D 15 | 3: 14
        z[feature, column] += alpha_z * delta_bar  # + line 13 | D 16 | 3: 15
    found = move_actor(settings, weights, ascent, trace, sizes, t.state, t.policy, t.action, q_after, s_after)  # 14, 15
    return found, advance(settings, trace, t.reward, delta, delta_v, t.next_choice)  # line 16 | D 19–23 | 3: 18, 19


@inlined
def td_errors(
    settings: Settings, w: FloatArray, z: FloatArray, q: float, s: float, t: Transition
) -> tuple[float, float]:
    """δ and δ̄ of a transition, with Q̂ = q and the spread critic's estimate s at S, A."""
    if t.terminated:
        return sampled_errors(settings, t.reward, q, s, 0.0, 0.0, 1.0)
    if settings.on_policy or settings.ratios != codes.EXPECTED:
        next_action = t.next_choice.action
        q_next, s_next = value(w, t.next_state, next_action), value(z, t.next_state, next_action)
        return sampled_errors(settings, t.reward, q, s, q_next, s_next, t.next_choice.rho)
    return expected_errors(settings, w, z, q, s, t)


@inlined
def sampled_errors(
    settings: Settings, reward: float, q: float, s: float, q_next: float, s_next: float, rho: float
) -> tuple[float, float]:
    """The errors of a sampled next action:

    AC         δ = R + γ ρ' Q' − Q                           line 10 | D 13 | 3: 12
    + VPAC     δ̄ = δ² + γ² ρ'² σ' − σ                        line 11 | D 14
    + VAAC_TD  δ̄ = R² + 2 γ R ρ' Q' + γ² ρ'² M' − M          3: 13, corrected
    """
    discount = settings.gamma * rho
    delta = reward + discount * q_next - q
    if settings.critic == codes.DIRECT:
        return delta, delta * delta + discount * discount * s_next - s
    return delta, reward * reward + 2.0 * reward * discount * q_next + discount * discount * s_next - s


@inlined
def expected_errors(
    settings: Settings, w: FloatArray, z: FloatArray, q: float, s: float, t: Transition
) -> tuple[float, float]:
    """The same averaged over the target policy's next action: needs no ratio, whatever the behaviour policy."""
    delta = delta_bar = 0.0
    for action in range(len(t.next_policy)):
        q_next, s_next = value(w, t.next_state, action), value(z, t.next_state, action)
        one, one_bar = sampled_errors(settings, t.reward, q, s, q_next, s_next, 1.0)
        delta += t.next_policy[action] * one
        delta_bar += t.next_policy[action] * one_bar
    return delta, delta_bar


@inlined
def move_actor(
    settings: Settings, weights: Weights, ascent: FloatArray, trace: Trace, sizes: StepSizes, state: IntArray,
    policy: FloatArray, action: int, q: float, s: float,
) -> int:  # fmt: skip
    """θ ← θ + α_θ ∇log π(A|S) · weight, with the critics after the step's update (line 14 | D 17 | 2: 19 | 3: 17)."""
    v = s_mean = 0.0
    if settings.baseline:
        v = mean_value(weights.w, state, policy)
        if settings.form == codes.PUBLISHED:
            s_mean = mean_value(weights.z, state, policy)
    weight = actor_weight(settings, trace, sizes.psi, q, v, s, s_mean)
    amount = sizes.alpha_theta * settings.score * weight
    if not abs(amount) < LARGEST_NUMBER:
        return codes.BAD_ACTOR
    add_score(ascent, state, policy, action, amount)
    return codes.GOOD


@inlined
def actor_weight(settings: Settings, trace: Trace, psi: float, q: float, v: float, s: float, s_mean: float) -> float:
    """The weight of step k: AC's, I_Q Q̂, minus ψ times the penalty of the algorithm and its form."""
    if settings.form == codes.PUBLISHED:
        if settings.critic != codes.DIRECT:
            return vaac_published(settings, trace, psi, q - v, s - s_mean)
        if settings.on_policy:
            return vpac_published(trace, psi, q - v, s - s_mean)
        return off_policy_vpac_published(trace, psi, q - v, s)
    sigma = s if settings.critic == codes.DIRECT else s - q * q
    if settings.on_policy or settings.ratios == codes.EXPECTED:
        return corrected(settings, trace, psi, q - v, sigma)
    return off_policy_vpac_published(trace, psi, q - v, sigma) - psi * 2.0 * trace.x * q


@inlined
def vpac_published(trace: Trace, psi: float, q: float, sigma: float) -> float:
    """AC: I_Q Q̂; + VPAC: − ψ I_σ σ̂ (line 15)."""
    return trace.i_q * q - psi * trace.i_sigma * sigma


@inlined
def corrected(settings: Settings, trace: Trace, psi: float, a: float, sigma: float) -> float:
    """ρ_{0:k} (I_Q A − ψ [I_σ (σ̂ + A²) + 2 I_Q (D_k + V̂(S_0) − c) A]); without a baseline Q for A and G_{0:k} − c.

    For the paper's own objective, the variance given the first action, the penalty at k = 0 is σ̂ alone.
    """
    if settings.variance_of == codes.ACTION and trace.first:
        penalty = sigma
    else:
        luck = (trace.luck if settings.baseline else trace.collected) + trace.offset
        penalty = trace.i_sigma * (sigma + a * a) + 2.0 * trace.i_q * luck * a
    return trace.rho * (trace.i_q * a - psi * penalty)


@inlined
def off_policy_vpac_published(trace: Trace, psi: float, q: float, sigma: float) -> float:
    """Off-policy AC: I_Q ρ_Q Q̂; + VPAC: − ψ̄ I_σ ρ_σ σ̂ (D 17), with ψ̄ = 2ψ from the second step on (D 9, 19).

    The gradient has an additional 2 X_k Q̂ in the penalty.
    """
    price = psi if trace.first else 2.0 * psi
    return trace.i_q * trace.rho * q - price * trace.t_bar * sigma


@inlined
def vaac_published(settings: Settings, trace: Trace, psi: float, q: float, m: float) -> float:
    """AC: ρ_{0:k} I_Q Q̂; + VAAC: − ρ_{0:k} μ {I_M M̂ + 2 γ I_Q Ḡ_k Q̂ − 2 I_Q V̂(S_0) Q̂} (2: 19 | 3: 17)."""
    collected = 2.0 * trace.i_q * (settings.gamma * trace.collected_bar - trace.value_0)
    return trace.rho * (trace.i_q * q - psi * (trace.i_sigma * m + collected * q))


@inlined
def advance(
    settings: Settings, trace: Trace, reward: float, delta: float, delta_v: float, next_choice: Choice
) -> Trace:
    """Trace of the next step: I_Q ← γ I_Q, + I_σ ← γ̄ I_σ, the ratios' products and the sums of the corrected form."""
    gamma, rho, t_bar, x = settings.gamma, trace.rho, trace.t_bar, trace.x
    collected = trace.collected + trace.i_q * reward
    collected_bar = trace.collected_bar + trace.i_sigma * rho * reward  # + 2: 12 | 3: 19
    luck = trace.luck + trace.i_q * delta_v
    if not settings.on_policy:
        rho_next = next_choice.rho
        x = gamma * rho_next * (x + t_bar * delta)
        t_bar *= gamma * gamma * rho_next * rho_next  # + D 21, 23
        rho *= next_choice.actor_rho  # D 22
    i_q, i_sigma = trace.i_q * gamma, trace.i_sigma * (gamma * gamma)  # line 16 | D 20, 21 | 3: 18
    return Trace(i_q, i_sigma, collected, collected_bar, luck, trace.offset, trace.value_0, rho, t_bar, x, False)


# Algorithm 2, lines 7–19


@inlined
def record(buffer: EpisodeBuffer, step: int, state: IntArray, policy: FloatArray, choice: Choice, reward: float) -> int:
    """Store a step of the episode (line 7)."""
    for index in range(len(state)):
        buffer.active[step, index] = state[index]
    for index in range(len(policy)):
        buffer.policy[step, index] = policy[index]
    buffer.action[step], buffer.reward[step] = choice.action, reward
    buffer.rho[step], buffer.actor_rho[step] = choice.rho, choice.actor_rho
    return codes.GOOD if math.isfinite(reward) else codes.BAD_REWARD


@shared
def learn_from_episode(
    settings: Settings, weights: Weights, ascent: FloatArray, sizes: StepSizes, buffer: EpisodeBuffer, steps: int,
    after: IntArray, choice: Choice, terminated: bool,
) -> tuple[int, int]:  # fmt: skip
    """Update the critics from whole returns, then the actor, over the whole episode.

        G_t = R_{t+1} + γ G_{t+1},     Q̂ ← Q̂ + α_w (G_t − Q̂_i),     M̂ ← M̂ + α_z (G_t² − M̂_i)

    Q̂_i and M̂_i are the critics before the episode. A truncated episode is bootstrapped with their estimates of the state
    `after` it. Off-policy G_t = R_{t+1} + γ ρ_{t+1} G_{t+1} in the corrected form; in the published one every reward has the
    ratios from the episode's start, Σ_j γ^{j−t} ρ_{0:j} R_{j+1}.

    Returns GOOD, or the quantity that is not finite and was not learned, and its step.
    """
    from_start = settings.form == codes.PUBLISHED and not settings.on_policy
    product = 1.0
    for step in range(steps):
        product *= buffer.rho[step]
        buffer.product[step] = product
    rest = 0.0 if terminated else value(weights.w, after, choice.action)
    rest_square = 0.0 if terminated else value(weights.z, after, choice.action)
    rho_next = product * choice.rho if from_start else choice.rho
    for back in range(steps):
        step = steps - 1 - back
        state, action, reward = buffer.active[step], buffer.action[step], buffer.reward[step]
        discount = settings.gamma * (rho_next if back == 0 or not from_start else 1.0)
        paid = reward * buffer.product[step] if from_start else reward
        rest_square = paid * paid + 2.0 * paid * discount * rest + discount * discount * rest_square
        rest = paid + discount * rest  # line 11
        buffer.value_error[step] = rest - value(weights.w, state, action)
        buffer.moment_error[step] = rest_square - value(weights.z, state, action)
        rho_next = buffer.rho[step]
        if not abs(sizes.alpha_w * buffer.value_error[step]) + abs(rest) < LARGEST_NUMBER:
            return codes.BAD_VALUE, step
        if not abs(sizes.alpha_z * buffer.moment_error[step]) + abs(rest_square) < LARGEST_NUMBER:
            return codes.BAD_SPREAD, step
    for step in range(steps):
        state, action = buffer.active[step], buffer.action[step]
        for index in range(len(state)):
            weights.w[state[index], action] += sizes.alpha_w * buffer.value_error[step]  # lines 8, 13
            weights.z[state[index], action] += sizes.alpha_z * buffer.moment_error[step]  # + lines 8, 14

    state, policy, first = buffer.active[0], buffer.policy[0], _recorded_choice(buffer, 0)
    q, v_0 = value(weights.w, state, first.action), mean_value(weights.w, state, policy)  # line 16
    trace = begin(settings, q, v_0, weights.mean[0], first)
    for step in range(steps):  # line 19
        state, action, policy, reward = (
            buffer.active[step],
            buffer.action[step],
            buffer.policy[step],
            buffer.reward[step],
        )
        q, s = value(weights.w, state, action), value(weights.z, state, action)
        found = move_actor(settings, weights, ascent, trace, sizes, state, policy, action, q, s)
        if found != codes.GOOD:
            return found, step
        if step + 1 < steps:
            next_state, next_policy, then = (
                buffer.active[step + 1],
                buffer.policy[step + 1],
                _recorded_choice(buffer, step + 1),
            )
            v_next = mean_value(weights.w, next_state, next_policy)
            delta_v = reward + settings.gamma * v_next - mean_value(weights.w, state, policy)
            delta = reward + settings.gamma * then.rho * value(weights.w, next_state, then.action) - q
            trace = advance(settings, trace, reward, delta, delta_v, then)
    return codes.GOOD, steps


# Measures of the return other than its variance: AC, plus an update at the end of an episode


@inlined
def interpolated(x: float, table: FloatArray) -> float:
    """f(x) from a table of ascending x and f(x), [2, knots]: linear between the knots, constant beyond."""
    low, high = 0, table.shape[1] - 1
    if x <= table[0, low]:
        return float(table[1, low])
    if x >= table[0, high]:
        return float(table[1, high])
    while high - low > 1:
        middle = (low + high) // 2
        if table[0, middle] <= x:
            low = middle
        else:
            high = middle
    share = (x - table[0, low]) / (table[0, high] - table[0, low])
    return float(table[1, low] + share * (table[1, high] - table[1, low]))


@shared
def learn_from_return(
    settings: Settings, weights: Weights, ascent: FloatArray, sizes: StepSizes, work: Workspace, steps: int, total: float
) -> tuple[int, int]:  # fmt: skip
    """θ ← θ − α_θ ψ Σ_k (IF(G) − b(S_k)) ∇log π(A_k|S_k), b(s) = Σ_a π(a|s) ẑ(s,a), and ẑ ← ẑ + α_z (IF(G) − ẑ).

    IF is the influence function of the measure at the distribution of recent returns (`risk.measures`), ẑ a baseline, which is
    updated after the actor. A time limit ends the return. Returns GOOD, or the quantity that is not finite and was not learned,
    and its step.
    """
    buffer, influence = work.buffer, interpolated(total, work.influence)
    for step in range(steps):
        state, policy = buffer.active[step], buffer.policy[step]
        base = mean_value(weights.z, state, policy) if settings.baseline else 0.0
        amount = -sizes.alpha_theta * settings.score * sizes.psi * (influence - base)
        if not abs(amount) < LARGEST_NUMBER:
            return codes.BAD_ACTOR, step
        add_score(ascent, state, policy, buffer.action[step], amount)
    for step in range(steps):
        state, action = buffer.active[step], buffer.action[step]
        error = sizes.alpha_z * (influence - value(weights.z, state, action))
        if not abs(error) < LARGEST_NUMBER:
            return codes.BAD_SPREAD, step
        for index in range(len(state)):
            weights.z[state[index], action] += error
    return codes.GOOD, steps


@inlined
def risk_neutral(sizes: StepSizes) -> StepSizes:
    """AC's step sizes, for `learn_step` with a penalty on the whole return."""
    return StepSizes(0.0, 0.0, sizes.alpha_theta, sizes.alpha_w, 0.0)


@inlined
def _recorded_choice(buffer: EpisodeBuffer, step: int) -> Choice:
    return Choice(buffer.action[step], buffer.rho[step], buffer.actor_rho[step], 0.0)
