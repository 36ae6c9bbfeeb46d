"""Training in one compiled function: collect → estimate → improve, for environments that are pure functions themselves.

It uses the estimators, penalties, updates and normaliser formulas of `ppo`. All random numbers of an iteration are an argument,
`Draws`; given the same ones, both ways of training learn the same weights up to rounding (here all numbers have 32 bits). An
iteration draws from a key made from the seed and its number, so a training resumed from a checkpoint is identical to an
undisturbed one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vpac.checks import whole
from vpac.deep import diagnostics
from vpac.deep.collect import RECENT, Episode, Rollout
from vpac.deep.estimate import (
    UNROLL,
    Batch,
    EpisodeSums,
    MeasureEstimate,
    SpreadEstimate,
    UnrolledBatch,
    estimate_update,
)
from vpac.deep.estimators import EpisodeTrace
from vpac.deep.improve import Networks, UpdateRules, fit_critic, flat, improve_policy, minibatch_sizes, update_samples
from vpac.deep.normaliser import CriticContext, RunningMoments, next_sums
from vpac.deep.options import PPOOptions
from vpac.deep.policy import BOUND
from vpac.deep.price import PriceRange, look_names, moved_price
from vpac.deep.spaces import Interface
from vpac.envs.functional import FunctionalEnv, FunctionalEnvironments, advance
from vpac.errors import UserError
from vpac.portable import cores as cores_of_process
from vpac.risk.budget import Budget, Multiplier

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO

Array = jax.Array
Agent = TypeVar("Agent", bound="PPO")
MOST_ITERATIONS = 64
"""Most iterations in one call."""
METRIC_COLUMNS = 80
"""Columns reserved for the metrics of an iteration."""
COMPILED_STREAM = 14
"""Number of the random stream of compiled trainings; the others are in `ppo`."""


@dataclass(frozen=True)
class CompiledPlan:
    """The static part of a training. All else is an argument, so one program serves all seeds and ψ."""

    env: FunctionalEnv
    interface: Interface
    options: PPOOptions
    kind: Literal["variance", "moment", "measure"] | None
    """The quantity that the spread critic learns."""
    volatility: bool
    """Whether the penalty is subtracted from the rewards (MVPI)."""

    @classmethod
    def of(cls, agent: PPO) -> CompiledPlan:
        """The plan of an agent; it does not depend on ψ."""
        if not agent.interface.plain or agent.interface.choices:
            raise UserError(
                f"{agent.environments.name}: compiled trainings take Box or Discrete actions, no images yet"
            )
        o = agent.options
        options = o if o.conditioned else replace(o, psi=0.0)
        return cls(agent.environments.env, agent.interface, options, agent.spread, agent.volatility)  # type: ignore[attr-defined]

    @property
    def prices(self) -> PriceRange | None:
        """The range of ψ of a conditioned policy."""
        return PriceRange.read(self.options.psi_range) if self.options.conditioned else None

    @property
    def raw(self) -> bool:
        """Whether ψ is in units of 1/(raw reward)."""
        return self.options.psi_units == "raw" or self.options.budget is not None


class State(NamedTuple):
    """Everything that an iteration changes."""

    networks: Networks
    envs: Any
    """States of the environments."""
    rows: Array
    """Their observations, as rows."""
    underway: Episode
    prices: Array
    """ψ of each environment's episode, for a conditioned policy."""
    trace: EpisodeTrace
    seen: RunningMoments
    context: RunningMoments
    rewards: RunningMoments
    reward_sums: Array
    window: Array
    drift: Array
    recent: Array
    """The last finished episodes, [episode, number]; the newest is last."""
    episodes: Array
    """Number of finished episodes."""
    multiplier: Array
    """State of the budget's controller."""
    failed: Array
    """Whether an iteration found a number that is not finite; that iteration is undone and training stops."""


class Draws(NamedTuple):
    """The random numbers of an iteration."""

    noise: Array
    """Noise of the actions, [time, environment, number]: Gumbel noise for logits, normal noise for means."""
    steps: Any
    """Random numbers of the environments' steps, [time, environment]."""
    resets: Any
    """Random numbers of the resets after these steps."""
    starts: Any
    """Random numbers of the resets before the first step, [environment]."""
    prices: Array
    """Uniform numbers for the ψ of episodes that begin at `resets`, for a conditioned policy."""
    first_prices: Array
    """The same for `starts`."""
    rows: Array
    """Minibatches, [gradient step, sample]; the same for all networks."""

    @classmethod
    def of(cls, plan: CompiledPlan, key: Array) -> Draws:
        """Draw them from a key."""
        o, env, n = plan.options, plan.env, plan.options.envs
        keys = jax.random.split(key, 5)
        noise = jax.random.gumbel if plan.interface.discrete_actions else jax.random.normal
        priced = o.steps, n if o.conditioned else 0
        count, size = minibatch_sizes(o, o.steps * n)
        order = permutations(keys[0], o.epochs, o.steps * n)
        moves = env.draws(keys[1], (2 * o.steps + 1, n))
        steps, resets = (jax.tree.map(lambda x, k=k: x[k : k + o.steps], moves) for k in (0, o.steps))
        return cls(
            noise(keys[2], (o.steps, n, plan.interface.actions)), steps, resets, jax.tree.map(lambda x: x[-1], moves),
            jax.random.uniform(keys[3], priced), jax.random.uniform(keys[4], priced[1:]),
            order[:, : count * size].reshape(-1, size),
        )  # fmt: skip


class Moment(NamedTuple):
    """Quantities of an iteration that depend only on the number of steps taken."""

    iteration: Array
    timesteps: Array
    restart: Array
    """Whether all environments are reset first."""
    psi: Array
    """ψ with its warm-up, if it is given."""
    full_psi: Array
    """ψ without its warm-up."""
    warm_up: Array
    """Share of the full ψ."""
    share: Array
    """Factor of the learning rates."""


def permutations(key: Array, count: int, size: int) -> Array:
    """Rows of 0 … size − 1 in random order.

    Sorting whole words is many times as fast on a CPU as sorting pairs, so a word holds a random number and, in its lowest
    bits, the index; two equal random numbers, which keep their order, are too rare to matter.
    """
    if size > 2**16:
        return jnp.asarray(jax.vmap(lambda one: jax.random.permutation(one, size))(jax.random.split(key, count)))
    low = (size - 1).bit_length()
    words = (jax.random.bits(key, (count, size)) >> low << low) | jnp.arange(size, dtype=jnp.uint32)
    return jnp.asarray(jnp.sort(words, axis=1) & (2**low - 1), jnp.int32)


def as_rows(interface: Interface, observations: Array) -> Array:
    """A batch of observations as rows of numbers; `Interface.rows` in JAX."""
    if interface.first_observation is None:
        return observations.reshape(len(observations), -1).astype(jnp.float32)
    return jax.nn.one_hot(observations - interface.first_observation, interface.inputs)


def as_commands(interface: Interface, actions: Array) -> Array:
    """A batch of actions as the environment takes them; `Interface.commands` in JAX."""
    if interface.first_action is not None:
        return actions + interface.first_action
    bounded = jnp.clip(actions, jnp.asarray(interface.low, jnp.float32), jnp.asarray(interface.high, jnp.float32))
    found = jnp.rint(bounded).astype(interface.integers) if interface.integers else bounded
    return found.reshape(len(actions), *interface.shape)


def restarted(plan: CompiledPlan, state: State, draws: Draws, restart: Array) -> State:
    """Reset all environments if `restart`."""
    envs, seen = jax.vmap(plan.env.reset)(draws.starts)
    zeros = jnp.zeros(plan.options.envs)
    new = state._replace(
        envs=envs, rows=as_rows(plan.interface, seen), underway=Episode(zeros, zeros, zeros, zeros),
        trace=EpisodeTrace.first(plan.options.envs), reward_sums=zeros,
        prices=state.prices if plan.prices is None else plan.prices.drawn(draws.first_prices),
    )  # fmt: skip
    found: State = jax.tree.map(lambda begun, old: jnp.where(restart, begun, old), new, state)
    return found


def collect(plan: CompiledPlan, state: State, draws: Draws) -> tuple[State, Rollout, Episode, Array]:
    """A rollout, and for each of its steps the episode so far and log π of the action."""
    o, interface, within, policy = plan.options, plan.interface, plan.prices, state.networks.policy
    gaussian = not interface.discrete_actions
    noise = jnp.exp(policy.log_std) * draws.noise if gaussian else draws.noise  # type: ignore[union-attr]

    def view(rows: Array, prices: Array) -> Array:
        if o.normalise_observations:
            rows = jnp.clip((rows - state.seen.mean) * state.seen.per_std, -BOUND, BOUND)
        return rows if within is None else within.beside(rows, prices)

    def step(now: tuple[Any, Array, Episode, Array], draw: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        (envs, rows, underway, prices), (noise, steps, resets, shares) = now, draw
        seen = view(rows, prices)
        outputs = policy.net(seen)
        actions = outputs + noise if gaussian else (outputs + noise).argmax(axis=-1).astype(jnp.int32)
        log_probs = eqx.tree_at(lambda whole: whole.net, policy, lambda rows: outputs).log_prob(seen, actions)
        envs, observed, after, rewards, over, cut = advance(
            plan.env, steps, resets, envs, underway.length, as_commands(interface, actions)
        )
        ended, after = over | cut, as_rows(interface, after)
        so_far = underway.after(rewards, 1.0, o.gamma, o.priced_gamma)
        row = (seen, view(after, prices), actions, rewards, 1.0 - over, 1.0 - ended, rows, prices, underway.length)
        if within is not None:
            prices = jnp.where(ended, within.drawn(shares), prices)
        underway = jax.tree.map(lambda x: jnp.where(ended, 0.0, x), so_far)
        return (envs, as_rows(interface, observed), underway, prices), (row, so_far, after, log_probs)

    first = state.envs, state.rows, state.underway, state.prices
    last, (row, so_far, after, log_probs) = jax.lax.scan(
        step, first, (noise, draws.steps, draws.resets, draws.prices), length=o.steps
    )
    envs, rows, underway, prices = last
    seen, successors, actions, rewards, continues, running, raw, priced, elapsed = row
    rollout = Rollout(
        observations=jnp.concatenate([seen, view(rows, prices)[None]]), successors=successors, actions=actions,
        rewards=rewards, continues=continues, running=running, valid=jnp.ones_like(running),
        raw=jnp.concatenate([raw, after]), prices=None if within is None else priced,
        elapsed=jnp.concatenate([elapsed, underway.length[None]]),
    )  # fmt: skip
    return state._replace(envs=envs, rows=rows, underway=underway, prices=prices), rollout, so_far, log_probs


def count_episodes(
    plan: CompiledPlan, state: State, rollout: Rollout, so_far: Episode, now: Moment
) -> tuple[State, Any]:
    """Record the finished episodes and let a budget adjust ψ; also returns metrics of recent episodes."""
    over, rows = flat(rollout.running) == 0.0, jnp.stack([flat(x) for x in so_far], axis=1)
    ranks = jnp.cumsum(over)
    new = jnp.minimum(ranks[-1], RECENT)
    slots = jnp.arange(RECENT)
    # the newest episodes last: the episode of rank r is at the first index where r episodes have finished
    which = jnp.searchsorted(ranks, ranks[-1] - (RECENT - 1) + slots)
    recent = jnp.where(slots[:, None] < RECENT - new, jnp.roll(state.recent, -new, axis=0), rows[which])
    episodes = state.episodes + ranks[-1]
    count = jnp.minimum(episodes, RECENT)
    kept = (slots >= RECENT - count)[:, None]
    mean = jnp.where(kept, recent, 0.0).sum(axis=0) / count
    variance = jnp.where(kept, (recent - mean) ** 2, 0.0).sum(axis=0) / count
    metrics = {
        "episodes": episodes, "score_mean": mean[0], "score_variance": variance[0], "return_mean": mean[1],
        "return_variance": variance[1], "length_mean": mean[2], "priced_variance": variance[3],
    }  # fmt: skip
    multiplier = state.multiplier
    if isinstance(plan.options.budget, Budget):
        names, size = look_names(plan.options.budget), len(multiplier)
        found = jax.pure_callback(
            partial(_budget, plan.options.budget), jnp.zeros(size + len(names)), multiplier, now.timesteps,
            over, rows[:, 3], recent[:, 3], count, vmap_method="sequential",
        )  # fmt: skip
        multiplier = found[:size]
        metrics |= dict(zip(names, found[size:], strict=True)) | {"budget_psi": found[0]}
    return state._replace(recent=recent, episodes=episodes, multiplier=multiplier), metrics


def recent_law(state: State, rollout: Rollout, so_far: Episode) -> tuple[Array, Array]:
    """Returns of the episodes finished in a rollout, or of the last hundred if those are more, and a mask of valid entries."""
    over = flat(rollout.running) == 0.0
    kept = jnp.arange(RECENT) >= RECENT - jnp.minimum(state.episodes, RECENT)
    many = over.sum() > kept.sum()
    counts = jnp.concatenate([over & many, kept & ~many])
    return jnp.where(counts, jnp.concatenate([flat(so_far.priced), state.recent[:, 3]]), 0.0), 1.0 * counts


def _budget(budget: Budget, multiplier: Any, timesteps: Any, over: Any, priced: Any, recent: Any, count: Any) -> Any:
    """The controller's step, on the host."""
    state = Multiplier.read(dict(zip(Multiplier._fields, multiplier, strict=True)))
    ended, last = (np.asarray(x, np.float64) for x in (priced[over], recent[RECENT - int(count) :]))
    state, *found = moved_price(budget, state, int(timesteps), ended, last)
    return np.array([*state, *found], np.float32)


def diagnose(
    plan: CompiledPlan, state: State, rollout: Rollout, spread: SpreadEstimate
) -> tuple[State, dict[str, Array]]:
    """Critics' predictions at start states, and the drift of the luck; see `diagnostics`."""
    size = float(plan.options.luck_episodes)
    window = diagnostics.windowed(state.window, jnp.stack(list(spread.episodes)), size)
    before, after = spread.luck_before, spread.luck_after

    def sums(k: Array) -> Array:
        now, ended = diagnostics.stopped_at(k, rollout.elapsed[:-1], rollout.running)
        return jnp.stack([(now * before**power + ended * after**power).sum() for power in range(3)])

    k = 2.0 ** jnp.arange(diagnostics.BINS)
    reached = k <= jnp.maximum(rollout.elapsed[:-1].max(), jnp.where(state.drift[0] > 0.0, k, 0.0).max())
    drift = diagnostics.LuckDriftMonitor.keep * state.drift + reached * jax.vmap(sums, out_axes=1)(k)
    drift = jnp.where(jnp.isfinite(drift).all(), drift, state.drift)
    metrics = {
        "start_value": window[1] / window[0], "start_variance": window[2] / window[0],
        "luck_drift": diagnostics.largest_drift(drift).share,
    }  # fmt: skip
    return state._replace(window=window, drift=drift), metrics


def improve(
    plan: CompiledPlan, networks: Networks, batch: Batch, actions: Array, log_probs: Array, weights: Array,
    targets: dict[str, Array], rows: Array, share: Array,
) -> tuple[Networks, dict[str, Array]]:  # fmt: skip
    """Improve the policy and fit each critic to its targets."""
    o, rules = plan.options, UpdateRules.of(plan.options, plan.interface)
    observations, samples = update_samples(batch, actions, weights, networks.policy.net.weights[0].shape[0])
    samples = samples._replace(log_probs=flat(log_probs))
    rate = rules.rate * share
    policy, policy_state, metrics = improve_policy(
        networks.policy, networks.policy_state, samples, rows, rate, rules.entropy * share**2, optimiser=rules.actor,
        clip=o.clip, target_kl=o.target_kl, normalise=o.normalise_advantages,
    )  # fmt: skip
    metrics["learning_rate"], learned = rate, {"policy": policy, "policy_state": policy_state}

    def fit(one: tuple[Any, Any, Array]) -> Any:
        return fit_critic(
            one[0], one[1], observations, flat(one[2]), samples.valid, rows, rules.critic_rate * share,
            optimiser=rules.critics,
        )  # fmt: skip

    alike: dict[Any, list[str]] = {}
    for name in targets:
        alike.setdefault(jax.tree.structure(getattr(networks, name)), []).append(name)
    for names in alike.values():  # a scan over critics of one kind, so that their code is compiled once
        each = [(getattr(networks, name), getattr(networks, f"{name}_state"), targets[name]) for name in names]
        fitted = jax.lax.map(fit, jax.tree.map(lambda *x: jnp.stack(x), *each))
        for i, name in enumerate(names):
            critic, critic_state, found = jax.tree.map(lambda x, i=i: x[i], fitted)
            learned |= {name: critic, f"{name}_state": critic_state}
            metrics |= {f"{name}_{what}": number for what, number in found.items()}
    return networks._replace(**learned), metrics


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["names"])
@dataclass(frozen=True)
class Named:
    """An array whose last axis has names. XLA compiles it faster than one array for each name."""

    values: Array
    names: tuple[str, ...]

    @classmethod
    def of(cls, numbers: dict[str, Array]) -> Named:
        """Stack numbers into one array."""
        return cls(jnp.stack([jnp.asarray(x, jnp.float32) for x in numbers.values()]), tuple(numbers))


def iterate(plan: CompiledPlan, state: State, draws: Draws, now: Moment) -> tuple[State, Named, Named]:
    """Run one iteration. Also returns its metrics and whether its inputs are finite.

    If some number is not finite, the state is unchanged except for `failed`.
    """
    o, before = plan.options, state
    state = restarted(plan, state, draws, now.restart | o.reset_every_iteration)
    state, rollout, so_far, log_probs = collect(plan, state, draws)
    state, metrics = count_episodes(plan, state, rollout, so_far, now)
    scale = jnp.float32(o.reward_scale) if o.reward_scale is not None else state.rewards.per_std
    psi = now.psi if o.budget is None else state.multiplier[0]
    unit = scale**o.price_power
    per_raw, per_scaled = (1.0, 1.0 / unit) if plan.raw else (unit, 1.0)
    rewards = rollout.training_rewards(o.reward_floor, per_raw * psi if plan.volatility else None)
    context = CriticContext(o.time_aware, plan.env.limit, 0)
    context.moments = state.context
    batch = UnrolledBatch.of(context.beside(rollout), rewards * scale)
    asked = psi if rollout.prices is None else rollout.prices * now.warm_up
    weights, targets, found, spread = estimate_update(
        state.networks, batch, state.trace, EpisodeSums(*state.window), asked * per_scaled, scale, kind=plan.kind,
        options=o, law=recent_law(state, rollout, so_far) if plan.kind == "measure" else None,
    )  # fmt: skip
    if isinstance(spread, MeasureEstimate):
        state = state._replace(trace=spread.trace)
        metrics["objective"] = metrics["return_mean"] - per_raw * now.full_psi * found["penalty_value"]
    elif spread is not None:
        state, more = diagnose(plan, state._replace(trace=spread.trace), rollout, spread)
        metrics |= more
        if rollout.prices is None:
            price = per_raw * (now.full_psi if o.budget is None else psi)
            metrics["objective"] = metrics["return_mean"] - price * metrics["priced_variance"]
        else:
            given = so_far.discounted, so_far.priced, per_raw * rollout.prices, rollout.running == 0.0
            metrics["objective"] = diagnostics.conditioned_objective(*given)
    networks, update = improve(
        plan, state.networks, batch, rollout.actions, log_probs, weights, targets, draws.rows, now.share
    )
    update = found | update | {
        "reward_scale": scale, "psi": asked if rollout.prices is None else rollout.prices.mean(),
        "steps": jnp.float32(rollout.rewards.size),
    }  # fmt: skip
    if not plan.interface.discrete_actions:
        update["std"] = jnp.exp(state.networks.policy.log_std).mean()  # type: ignore[union-attr]
    state = normalised(plan, state._replace(networks=networks), rollout, rewards, context)
    causes = {
        "observation": rollout.raw, "reward": rollout.rewards, "scaled reward": batch.rewards,
        **{f"target of the {name} critic": target for name, target in targets.items()}, "advantage": weights,
    }  # fmt: skip
    finite = jnp.stack([jnp.isfinite(x).all() for x in causes.values()])
    finite = jnp.concatenate([finite, jnp.isfinite(Named.of(update).values)])
    good = finite.all()
    # not with `where`: XLA would repeat the test for each array
    state = jax.lax.cond(good, lambda new, old: new, lambda new, old: old, state, before)
    return state._replace(failed=~good), Named.of(metrics | update), Named(finite, (*causes, *update))


def normalised(plan: CompiledPlan, state: State, rollout: Rollout, rewards: Array, context: CriticContext) -> State:
    """Update the normalisers with the rollout."""
    o = plan.options
    if context.columns:
        state = state._replace(context=state.context.joined(flat(rollout.elapsed[:-1])[:, None]))
    if not plan.interface.discrete_observations:
        state = state._replace(seen=state.seen.joined(flat(rollout.raw[: o.steps])))
    if o.reward_scale is None:
        rows = rewards, rollout.running
        reward_sums, sums = jax.lax.scan(
            lambda sums, row: next_sums(sums, *row, o.gamma), state.reward_sums, rows, unroll=UNROLL
        )
        state = state._replace(reward_sums=reward_sums, rewards=state.rewards.joined(flat(sums)))
    return state


class IterationReport(NamedTuple):
    """Metrics of the iterations of one call."""

    done: Array
    """Number of iterations."""
    metrics: Named
    """One row per iteration."""
    finite: Named
    """Whether each input of the last iteration is finite."""


def train(plan: CompiledPlan, state: State, key: Array, moments: Moment, count: Array) -> tuple[State, IterationReport]:
    """Run `count` iterations, at most as many as there are `moments`; stop early if a number is not finite."""
    names: list[tuple[str, ...]] = []

    def going(carry: tuple[Any, ...]) -> Any:
        return (carry[0] < count) & ~carry[1].failed

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        done, state, columns, flags = carry
        now = jax.tree.map(lambda x: x[done], moments)
        state, metrics, finite = iterate(plan, state, Draws.of(plan, jax.random.fold_in(key, now.iteration)), now)
        names[:] = metrics.names, finite.names
        columns = columns.at[done, : len(metrics.names)].set(metrics.values)
        return done + 1, state, columns, flags.at[: len(finite.names)].set(finite.values)

    first = jnp.int32(0), state, jnp.zeros((len(moments.psi), METRIC_COLUMNS)), jnp.ones(METRIC_COLUMNS, bool)
    done, state, columns, flags = jax.lax.while_loop(going, body, first)
    return state, IterationReport(done, Named(columns, names[0]), Named(flags, names[1]))


one_run = jax.jit(train, static_argnames="plan", donate_argnames="state")


@partial(jax.jit, static_argnames="plan")
def _envs(plan: CompiledPlan) -> tuple[Any, Array]:
    """Placeholder states and rows for the first iteration, which begins with a restart."""
    envs, seen = jax.vmap(plan.env.reset)(plan.env.draws(jax.random.key(0), (plan.options.envs,)))
    return jax.tree.map(lambda x: x.astype(x.dtype), envs), as_rows(plan.interface, seen)


UNDERWAY = ("envs", "rows", "underway", "prices")
"""Fields of a state that belong to unfinished episodes and are stored nowhere else in the agent."""


def _is_key(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def resumed_state(agent: PPO, state: State) -> State:
    """The `initial` state with the unfinished episodes of a checkpoint."""
    leaves, shape = jax.tree.flatten([getattr(state, name) for name in UNDERWAY])
    found = [
        jax.random.wrap_key_data(jnp.asarray(saved)) if _is_key(leaf) else jnp.asarray(saved, leaf.dtype)
        for leaf, saved in zip(leaves, agent.env_states, strict=True)
    ]
    return state._replace(**dict(zip(UNDERWAY, jax.tree.unflatten(shape, found), strict=True)))


def initial(agent: PPO, plan: CompiledPlan) -> State:
    """The state of an agent before an iteration that begins with a restart."""

    def moments(m: RunningMoments) -> RunningMoments:
        return RunningMoments(*(jnp.asarray(x, jnp.float32) for x in m))

    n, recent = plan.options.envs, np.zeros((RECENT, 4), np.float32)
    if agent.recent:
        recent[-len(agent.recent) :] = list(agent.recent)
    envs, rows = _envs(plan)
    zeros = jnp.zeros(n)
    return State(
        jax.tree.map(jnp.array, agent.networks), envs, rows, Episode(*(jnp.zeros(n) for _ in range(4))),
        zeros if plan.prices else jnp.zeros(0), EpisodeTrace(*(jnp.array(x) for x in agent.trace)),
        moments(agent.observation_moments), moments(agent.context.moments), moments(agent.reward_scale.moments),
        jnp.asarray(agent.reward_scale.sums, jnp.float32), jnp.asarray(agent.window.sums, jnp.float32),
        jnp.asarray(agent.drift.sums, jnp.float32), jnp.asarray(recent), jnp.int32(agent.episodes),
        jnp.asarray(Multiplier() if agent.controller is None else agent.controller.state, jnp.float32),
        jnp.array(False),
    )  # fmt: skip


def take(agent: PPO, state: State) -> None:
    """Copy the state of a training into its agent."""

    def moments(m: RunningMoments) -> RunningMoments:
        return RunningMoments(np.asarray(m.mean, np.float64), np.asarray(m.variance, np.float64), float(m.count))

    agent.updater.networks, agent.trace = state.networks, state.trace
    leaves = jax.tree.leaves([getattr(state, name) for name in UNDERWAY])
    agent.env_states = [np.asarray(jax.random.key_data(x) if _is_key(x) else x) for x in leaves]
    agent.observation_moments, agent.context.moments = moments(state.seen), moments(state.context)
    agent.reward_scale.moments = moments(state.rewards)
    agent.reward_scale.sums = np.asarray(state.reward_sums, np.float64)
    agent.window.sums, agent.drift.sums = np.asarray(state.window, np.float64), np.asarray(state.drift, np.float64)
    agent.episodes = int(state.episodes)
    agent.recent.clear()
    agent.recent.extend(
        Episode(*(float(x) for x in row)) for row in np.asarray(state.recent)[RECENT - min(agent.episodes, RECENT) :]
    )
    if agent.controller is not None:
        agent.controller.state = Multiplier.read(dict(zip(Multiplier._fields, state.multiplier, strict=True)))
    if agent.episode_prices is not None:
        agent.episode_prices.now = np.asarray(state.prices, np.float64)


def moments_of(agent: PPO, count: int, restart: bool) -> Moment:
    """The moments of the next `count` iterations of an agent; the first iteration may begin with a restart."""
    at = [agent.timesteps + i * agent.per_iteration for i in range(count)]
    every = agent.options.checkpoint_every
    rows = [
        (
            agent.iteration + i, t, restart and i == 0,
            0.0 if agent.options.conditioned else agent.full_psi_at(t) * agent.warm_up_at(t),
            0.0 if agent.options.conditioned else agent.full_psi_at(t), agent.warm_up_at(t), agent.rate_share_at(t),
        )
        for i, t in enumerate(at)
    ]  # fmt: skip
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    kinds = (np.int32, np.float32, bool, *[np.float32] * 4)
    padded = [np.zeros(min(MOST_ITERATIONS, every), kind) for kind in kinds]
    for place, column in zip(padded, columns, strict=True):
        place[:count] = column
    return Moment(*map(jnp.asarray, padded))


def _rank(name: str) -> int:
    """Rank of a quantity that is not finite: causes before their consequences."""
    causes = ("observation", "reward", "scaled reward", "target", "advantage", name)
    return next(i for i, cause in enumerate(causes) if name == cause or name.startswith(f"{cause} "))


MOST_PROGRAMS = 20
"""Largest number of compiled trainings that are kept. Each takes about 1 250 of the 65 530 memory maps that Linux allows a
process; beyond them XLA crashes."""
_compiling = threading.Lock()
_compiled: set[CompiledPlan] = set()


class CompiledTraining:
    """The compiled training of one agent."""

    def __init__(self, agent: PPO) -> None:
        self.agent, self.plan = agent, CompiledPlan.of(agent)
        words = np.random.SeedSequence(agent.seed, spawn_key=(COMPILED_STREAM,)).generate_state(2)
        self.key = jax.random.wrap_key_data(jnp.asarray(words))
        self.state, self._restart = initial(agent, self.plan), not agent.env_states
        if agent.env_states:
            self.state = resumed_state(agent, self.state)

    @property
    def left(self) -> int:
        """Iterations of the next call: up to a checkpoint or to the end of `learn`, at most `MOST_ITERATIONS`."""
        agent, every = self.agent, self.agent.options.checkpoint_every
        steps = 0 if agent.diverged else agent.span[1] - agent.timesteps
        return min(steps // agent.per_iteration, every - agent.iteration % every, MOST_ITERATIONS)

    def moments(self, count: int) -> Moment:
        """The moments of the next `count` iterations."""
        restart, self._restart = self._restart, False
        return moments_of(self.agent, count, restart)

    def advance(self, count: int) -> None:
        """Run `count` iterations.

        Raises:
            NotFinite: if a number is not finite; the agent keeps its state from before that iteration.
        """
        given = self.plan, self.state, self.key, self.moments(count), np.int32(count)
        if self.plan in _compiled:
            self.state, report = one_run(*given)
        else:
            with _compiling:  # other threads wait instead of compiling the same function
                if len(_compiled) >= MOST_PROGRAMS:
                    jax.clear_caches()  # type: ignore[no-untyped-call]
                    _compiled.clear()
                self.state, report = one_run(*given)
                _compiled.add(self.plan)
        self.record(report)

    def record(self, report: IterationReport) -> None:
        """Copy the results into the agent."""
        agent, failed = self.agent, bool(self.state.failed)
        take(agent, self.state)
        columns = np.asarray(report.metrics.values, np.float64)
        columns = np.where(np.isnan(columns), np.nan, columns)  # one NaN, as in files
        for numbers in columns[: int(report.done) - failed].tolist():
            agent.timesteps += agent.per_iteration
            agent.iteration += 1
            row = dict(zip(report.metrics.names, numbers, strict=False))
            agent.history.add(agent.iteration, {"timesteps": float(agent.timesteps), **row})
        agent.warn_of_drift(agent.raw_psi(agent.psi))
        if failed:
            found = [name for name, fine in zip(report.finite.names, report.finite.values, strict=False) if not fine]
            bad = diagnostics.first_cause(sorted(found, key=_rank))
            raise diagnostics.NotFinite(agent.undone(f"the {bad} of {agent.environments.name} is not finite"))


def among(devices: int) -> Any:
    """Division of a batch of runs among the devices."""
    spec: Any = jax.sharding.PartitionSpec
    return jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("runs",)), spec("runs"))


@partial(jax.jit, static_argnames=("plan", "devices"), donate_argnames="state")
def many_runs(
    plan: CompiledPlan, devices: int, state: State, keys: Array, moments: Moment, count: Array
) -> tuple[State, IterationReport]:
    """`train` for a batch of runs, divided equally among the devices."""
    runs = jax.vmap(partial(train, plan), in_axes=(0, 0, 0, None))
    if devices > 1:
        mesh, split, same = (where := among(devices)).mesh, where.spec, type(where.spec)()
        runs = jax.shard_map(runs, mesh=mesh, in_specs=(split, split, split, same), out_specs=split, check_vma=False)
    found: tuple[State, IterationReport] = runs(state, keys, moments, count)
    return found


class Layout(NamedTuple):
    """Batch size of a program: `each` runs on every one of `devices`."""

    each: int
    devices: int

    @classmethod
    def of(cls, together: int | None = None) -> Layout:
        """The layout for this machine: 1 on a CPU, where XLA is slower with a batch of small networks, otherwise 64."""
        return cls(together or (1 if jax.default_backend() == "cpu" else 64), jax.device_count())

    @property
    def most(self) -> int:
        """Runs on all devices together."""
        return self.each * self.devices


def learn_batch(
    agents: Sequence[PPO], layout: Layout, checkpoint: Callable[[int], object] = lambda which: None
) -> None:
    """Train agents as one batch, in one program; `begin` was called for each, and all have the same number of steps left.

    At most `layout.most` agents; missing ones are filled up with copies of the first. `checkpoint` is called with the index of
    each agent whenever it may be saved.
    """
    devices = layout.devices
    width = min(layout.most, -(-len(agents) // devices) * devices)
    trainings = [CompiledTraining(agent) for agent in agents]
    slots = [*range(len(agents)), *[0] * (width - len(agents))]

    def stacked(trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack([leaves[i] for i in slots]), *trees)

    state, keys = stacked([training.state for training in trainings]), stacked([training.key for training in trainings])
    while count := max(training.left for training in trainings):
        moments = stacked([training.moments(count) for training in trainings])
        if devices > 1:
            state = jax.device_put(state, among(devices))  # otherwise the second call would compile again
        state, report = many_runs(trainings[0].plan, devices, state, keys, moments, np.int32(count))
        here = jax.device_get((state, report))  # one transfer; taking single runs apart on the devices is slow
        for i, training in enumerate(trainings):
            if not training.agent.diverged:
                training.state, found = jax.tree.map(lambda x, i=i: x[i], here)
                try:
                    training.record(found)
                except diagnostics.NotFinite as error:
                    training.agent.diverged = error
                    continue
                if training.agent.iteration % training.agent.options.checkpoint_every == 0:
                    checkpoint(i)


def learn_many(
    kind: type[Agent], env: Any, total_timesteps: int, *, seeds: Iterable[int], psi: Iterable[Any] | None = None,
    cores: int | None = None, together: int | None = None, kept: Callable[[Agent], object] | None = None, **settings: Any,
) -> list[Agent]:  # fmt: skip
    """Train an agent for each seed and each ψ, all with one compiled program.

    On a CPU each core trains one agent after the other, because XLA is slower there with a batch of small networks; each agent
    is bit for bit the one that `learn` gives. On other devices, or with `together`, a program trains a batch (`jax.vmap`),
    divided equally among several devices (`jax.shard_map`); then agents differ from those of `learn` by rounding.

    Args:
        kind: the class of the agents, `VPACPPO` for example.
        env: a functional environment.
        total_timesteps: of each agent.
        seeds: of the agents.
        psi: values of ψ; None: the one in `settings`.
        cores: how many agents learn at a time; None: as many as there are cores.
        together: batch size on each device, which bounds the memory; None: 1 on a CPU, otherwise 64.
        kept: called with each agent when it has finished, in any order.
        settings: as the class takes them.

    Returns:
        The agents, for each seed those of all ψ. An agent that met a number that is not finite keeps its state from before it,
        and its attribute `diverged` holds the error.
    """
    for name, several in (("seeds", seeds), ("psi", () if psi is None else psi)):
        if isinstance(several, str) or not isinstance(several, Iterable):
            raise UserError(f"{name} must be several, for example a list, got {several!r}")
    for name, count in (("cores", cores), ("together", together)):
        if count is not None:
            whole(count, name, 1)
    prices: list[dict[str, Any]] = [{}] if psi is None else [{"psi": price} for price in psi]
    agents: list[Agent] = []
    for seed in seeds:
        for price in prices:
            agents.append(kind(env if not agents else agents[0].environments, seed=seed, **settings, **price))
    if agents and not isinstance(envs := agents[0].environments, FunctionalEnvironments):
        needed = "an environment of pure functions of JAX (docs/functional.md)"
        raise UserError(f"learn_many needs {needed}, got {envs.name}")
    layout = Layout.of(together)
    if layout.most > 1:
        for first in range(0, len(agents), layout.most):
            group = agents[first : first + layout.most]
            for agent in group:
                agent.begin(total_timesteps)
            learn_batch(group, layout)
            for agent in group if kept else ():
                kept(agent)  # type: ignore[misc]
        return agents

    def learned(agent: Agent) -> None:
        try:
            agent.learn(total_timesteps)
        except diagnostics.NotFinite as error:
            agent.diverged = error
        if kept is not None:
            kept(agent)

    with ThreadPoolExecutor(cores or cores_of_process(), "learn") as pool:
        try:
            for done in [pool.submit(learned, agent) for agent in agents]:
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return agents
