"""Mutation testing of the arithmetic: a test must fail for each small error in a copy of the source.

    python benchmarks/mutants.py                          all of them, about a quarter of an hour on one core
    python benchmarks/mutants.py --only x-without-ratio   one, while a test is written for it
    python benchmarks/mutants.py --list                   names, files and changes

Each mutant replaces one piece of text in a temporary copy of src; the nearest tests then run against the copy. It is killed if
a test fails, and survives if all pass. It is stale if its text does not occur exactly once in the file, and broken if the tests
could not be run or took too long. The exit code is 0 only if all are killed. First the unmutated copy must pass the same tests.

Rows are grouped by the file they change and by the tests that are nearest to it: add new ones to `TABLE`. Tests that need no
compiled code run with NUMBA_DISABLE_JIT=1: Numba takes half a minute to compile the learners' loop.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"


class Tests(NamedTuple):
    """Arguments of pytest that name tests, from the repository's root."""

    arguments: tuple[str, ...]
    compiled: bool = True
    """Whether Numba compiles; False where the functions under test run as plain Python, too."""


class Mutant(NamedTuple):
    """An error: in a file of `vpac`, a text that occurs once, and what takes its place."""

    name: str
    file: str
    text: str
    replacement: str
    tests: Tests

    def applied(self, source: str) -> str | None:
        """The file's content with the error; None if the text does not occur exactly once."""
        return source.replace(self.text, self.replacement) if source.count(self.text) == 1 else None


class Result(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    verdict: str
    """"killed", "survived", "stale" or "broken"."""
    seconds: float
    detail: str
    """The test that killed it, or why it could not be tried."""


BY_HAND = Tests(("tests/tabular/test_by_hand.py", "tests/tabular/test_enumeration.py"), compiled=False)
SOFTMAX = Tests(("tests/tabular/kernel/test_softmax.py",))
CUT = Tests(("tests/tabular/test_ratios.py", "-k", "cut_carries or two_actions_by_hand"))
ON_POLICY_LOOP = Tests(("tests/tabular/test_gymnasium_loop.py", "-k", "tables_on_policy and VPAC and published"))
OFF_POLICY_LOOP = Tests(("tests/tabular/test_gymnasium_loop.py", "-k", "tables_off_policy and VPAC and clipped"))
TILES = Tests(("tests/tabular/test_gymnasium_loop.py", "-k", "test_tiles and VPAC and not OffPolicy"))
MVPI = Tests(("tests/tabular/test_mvpi.py", "-k", "finds_what_exact"))
BOOKKEEPING = Tests(("tests/deep/test_bookkeeping.py",))
IMPROVE = Tests(("tests/deep/test_improve.py",))
PRESETS = Tests(("tests/deep/test_presets.py",))
ESTIMATORS = Tests(("tests/deep/test_estimators.py",))
ESTIMATE = Tests(("tests/deep/test_estimate.py",))
LEARNER = Tests(("tests/deep/test_learner.py",))
UPDATES = Tests(("tests/deep/test_learner.py", "-k", "rate_and_of or its_own_target or asked_for"))
CONTEXT = Tests(("tests/deep/test_context.py",))
GUARDS = Tests(("tests/deep/test_guards.py",))
SPECS = Tests(("tests/lab/experiments/test_experiments.py",))

TABLE: dict[tuple[str, Tests], tuple[tuple[str, str, str], ...]] = {
    ("tabular/update.py", BY_HAND): (
        ("clipped-at-two", "min(1.0, rho)", "min(2.0, rho)"),
        ("actors-ratio-unclipped", "clipped if settings.clip_actor else rho", "rho"),
        ("greedy-share", "+= 1.0 - settings.epsilon", "= 1.0 - settings.epsilon"),
        ("x-with-advantage", "psi * 2.0 * trace.x * q", "psi * 2.0 * trace.x * (q - v)"),
        ("baseline-added", "corrected(settings, trace, psi, q - v, sigma)", "corrected(settings, trace, psi, q + v, sigma)"),
        ("vaac-baseline-added", "vaac_published(settings, trace, psi, q - v,", "vaac_published(settings, trace, psi, q + v,"),
        ("off-policy-baseline-added", "trace, psi, q - v, s)", "trace, psi, q + v, s)"),
        ("x-left-out", " - psi * 2.0 * trace.x * q", ""),
        ("no-squared-advantage", "trace.i_sigma * (sigma + a * a)", "trace.i_sigma * sigma"),
        ("luck-once", "2.0 * trace.i_q * luck * a", "trace.i_q * luck * a"),
        ("luck-not-discounted", "2.0 * trace.i_q * luck * a", "2.0 * luck * a"),
        ("luck-is-collected", "trace.luck if settings.baseline else trace.collected", "trace.collected"),
        ("first-action-not-free", "settings.variance_of == codes.ACTION and trace.first", "False"),
        ("corrected-without-ratio", "trace.rho * (trace.i_q * a - psi * penalty)", "trace.i_q * a - psi * penalty"),
        ("published-i-sigma", "psi * trace.i_sigma * sigma", "psi * trace.i_q * sigma"),
        ("moment-for-variance", "s if settings.critic == codes.DIRECT else s - q * q", "s"),
        ("vaac-collected-not-discounted", "settings.gamma * trace.collected_bar", "trace.collected_bar"),
        ("vaac-without-value", "settings.gamma * trace.collected_bar - trace.value_0", "settings.gamma * trace.collected_bar"),
        ("off-policy-price-once", "psi if trace.first else 2.0 * psi", "psi"),
        ("off-policy-price-always-twice", "psi if trace.first else 2.0 * psi", "2.0 * psi"),
        ("x-without-ratio", "gamma * rho_next * (x + t_bar * delta)", "gamma * (x + t_bar * delta)"),
        ("x-forgets", "gamma * rho_next * (x + t_bar * delta)", "gamma * rho_next * t_bar * delta"),
        ("t-bar-ratio-once", "gamma * gamma * rho_next * rho_next", "gamma * gamma * rho_next"),
        ("t-bar-gamma-once", "gamma * gamma * rho_next * rho_next", "gamma * rho_next * rho_next"),
        ("i-sigma-gamma-once", "trace.i_sigma * (gamma * gamma)", "trace.i_sigma * gamma"),
        ("collected-not-discounted", "trace.collected + trace.i_q * reward", "trace.collected + reward"),
        ("collected-bar-without-ratio", "trace.i_sigma * rho * reward", "trace.i_sigma * reward"),
        ("collected-bar-gamma-once", "trace.i_sigma * rho * reward", "trace.i_q * rho * reward"),
        ("luck-sum-not-discounted", "trace.luck + trace.i_q * delta_v", "trace.luck + delta_v"),
        ("offset-without-value", "state_value - reference if settings.baseline else -reference", "-reference"),
        ("reference-of-state", "reference = state_value", "reference = mean"),
        ("reference-of-action", "reference = action_value", "reference = state_value"),
        ("variance-ratio-once", "delta + discount * discount * s_next", "delta + settings.gamma * discount * s_next"),
        ("variance-gamma-once", "delta * delta + discount * discount * s_next", "delta * delta + discount * rho * s_next"),
        ("moment-cross-term-once", "2.0 * reward * discount * q_next", "reward * discount * q_next"),
        ("moment-cross-term-here", "2.0 * reward * discount * q_next", "2.0 * reward * discount * q"),
        ("value-without-ratio", "reward + discount * q_next - q", "reward + settings.gamma * q_next - q"),
        ("expected-with-chance", "q_next, s_next, 1.0)", "q_next, s_next, t.next_policy[action])"),
        ("end-is-bootstrapped", "reward, q, s, 0.0, 0.0, 1.0", "reward, q, s, q, s, 1.0"),
        ("luck-without-gamma", "settings.gamma * mean_value(w, t.next_state,", "mean_value(w, t.next_state,"),
        ("actor-before-critics", "t.action, q_after, s_after)", "t.action, q, s)"),
        ("score-without-temperature", "alpha_theta * settings.score * weight", "alpha_theta * weight"),
        ("baseline-of-wrong-critic", "s_mean = mean_value(weights.z,", "s_mean = mean_value(weights.w,"),
        ("spread-with-value-rate", "+= alpha_z * delta_bar", "+= alpha_w * delta_bar"),
        ("tiles-not-counted", "q + n_active * alpha_w * delta", "q + alpha_w * delta"),
        ("volatility-paid-by-actor", "return 0.0, psi", "return psi, 0.0"),
        ("spread-rate-not-shared", "rates.alpha_z[episode] / n_active", "rates.alpha_z[episode]"),
        ("published-targets-without-ratio", "reward * buffer.product[step] if from_start else reward", "reward"),
        ("published-targets-ratio-twice", "(rho_next if back == 0 or not from_start else 1.0)", "rho_next"),
        ("cut-without-ratio", "if from_start else choice.rho", "if from_start else 1.0"),
        ("published-cut-without-ratio", "product * choice.rho if from_start", "product if from_start"),
        ("published-cut-without-past", "product * choice.rho if from_start", "choice.rho if from_start"),
        ("square-cross-term-once", "2.0 * paid * discount * rest", "paid * discount * rest"),
        ("square-gamma-once", "discount * discount * rest_square", "discount * rest_square"),
        ("returns-with-actors-ratio", "rho_next = buffer.rho[step]", "rho_next = buffer.actor_rho[step]"),
        ("actors-error-without-ratio", "settings.gamma * then.rho * value(", "settings.gamma * value("),
        ("recorded-luck-without-gamma", "settings.gamma * v_next", "v_next"),
        ("cut-square-of-value", "0.0 if terminated else value(weights.z,", "0.0 if terminated else value(weights.w,"),
    ),
    ("tabular/kernel/softmax.py", BY_HAND): (
        ("mean-of-actions", "policy[action] * value(weights, active, action)", "value(weights, active, action) / len(policy)"),
        ("score-without-policy", " - policy[other])", ")"),
    ),
    ("tabular/kernel/softmax.py", SOFTMAX): (
        ("temperature-ignored", "value(theta, active, action) * coldness", "value(theta, active, action)"),
        ("fours-not-summed", "total += exponentiate_four(", "total = exponentiate_four("),
    ),
    ("tabular/kernel/exponential.py", SOFTMAX): (
        ("short-polynomial", "DEGREE = 13", "DEGREE = 9"),
        ("score-of-four-added", "score = builder.fsub(ones,", "score = builder.fadd(ones,"),
    ),
    ("risk/measures/volatility.py", BY_HAND): (
        ("volatility-mean-once", "2.0 * mean - reward", "mean - reward"),
    ),
    ("tabular/loop.py", CUT): (
        ("cut-ratio-not-passed", "here, choice, termi", "here, update.Choice(choice.action, 1.0, 1.0, 0.0), termi"),
    ),
    ("tabular/loop.py", ON_POLICY_LOOP): (
        ("return-not-discounted", "discount *= settings.gamma", "discount *= 1.0"),
    ),
    ("tabular/loop.py", OFF_POLICY_LOOP): (
        ("effective-share", "square_sum += product * product", "square_sum += product"),
    ),
    ("tabular/loop.py", TILES): (
        ("policy-of-the-state-left", "changed = here if world.n_active == 1 else there", "changed = here"),
    ),
    ("tabular/loop.py", MVPI): (
        ("mean-of-return-not-step", "((1.0 - settings.gamma) * total", "(total"),
    ),
    ("deep/normaliser.py", BOOKKEEPING): (
        ("moments-without-cross-term", " + shift**2 * self.count * n / total", ""),
        ("mean-of-pieces", "self.mean + shift * n / total", "self.mean + shift / 2.0"),
        ("scale-not-reset-at-ends", "rewards[t], running[t] * valid[t]", "rewards[t], valid[t]"),
        ("scale-not-reset-when-idle", "rewards[t], running[t] * valid[t]", "rewards[t], running[t]"),
        ("scale-not-discounted", "here = gamma * sums + reward", "here = sums + reward"),
        ("scale-of-variance", "1.0 / namespace(self.variance).sqrt(self.variance + 1e-8)", "1.0 / (self.variance + 1e-8)"),
        ("scale-counts-idle-steps", "sums[valid > 0.0]", "sums.ravel()"),
        ("scale-not-restarted", "self.sums = np.zeros_like(self.sums)", "self.sums = self.sums.copy()"),
    ),
    ("deep/collect.py", BOOKKEEPING): (
        ("floor-is-ceiling", ".maximum(self.rewards, floor)", ".minimum(self.rewards, floor)"),
        ("mean-reward-of-idle-steps", "(rewards[self.valid > 0.0] if", "(rewards if"),
        ("episode-discounted-early", "+ gamma**self.length * rewards", "+ gamma ** (self.length + 1.0) * rewards"),
        ("episode-counts-idle-steps", "self.length + valid", "self.length + 1.0"),
        ("episode-scores-idle-steps", "self.score + rewards * valid", "self.score + rewards"),
        ("variance-of-scores", '"return_variance": float(sums.var())', '"return_variance": float(score.var())'),
    ),
    ("deep/price.py", BOOKKEEPING): (
        ("prices-even", "share * (self.high**0.5 - self.low**0.5)) ** 2", "share * (self.high - self.low)) ** 2"),
        ("price-shown-from-zero", "2.0 * share - 1.0", "share"),
        ("price-shown-even", "(xp.sqrt(psi) - self.low**0.5)", "(psi - self.low**0.5)"),
        ("all-prices-drawn", "self.now[which] = self.within.drawn(self.generator.random(int(which.sum())))",
         "self.now[:] = self.within.drawn(self.generator.random(len(which)))"),
    ),
    ("deep/improve.py", IMPROVE): (
        ("weight-decay-ignored", "if self.weight_decay else []", "if False else []"),
        ("gradient-not-clipped", "[] if self.max_grad_norm is None else", "[] if True else"),
        ("surrogate-of-best", "jnp.minimum(ratio * samples.weights", "jnp.maximum(ratio * samples.weights"),
        ("surrogate-not-clipped-below", "jnp.clip(ratio, 1.0 - clip, 1.0 + clip)", "jnp.clip(ratio, 0.0, 1.0 + clip)"),
        ("surrogate-counts-idle-steps", "(samples.valid * rows).sum() / count", "rows.mean()"),
        ("entropy-is-a-loss", "-mean(gain) - entropy * spread", "-mean(gain) + entropy * spread"),
        ("divergence-without-ratio", "mean(ratio - 1.0 - log_ratio)", "mean(-log_ratio)"),
        ("advantages-not-divided", "(weights - mean) / (std + 1e-8)", "weights - mean"),
        ("advantages-of-idle-steps", "mean = (samples.valid * weights).sum() / count", "mean = weights.mean()"),
        ("divergence-at-target", "kl <= 1.5 * target_kl", "kl <= target_kl"),
        ("regression-on-idle-steps", "weight = valid[which]", "weight = jnp.ones_like(valid[which])"),
    ),
    ("deep/estimators.py", ESTIMATORS): (
        ("deep-end-is-bootstrapped", "gamma * continues * next_value - value", "gamma * next_value - value"),
        ("deep-variance-gamma-once", "delta**2 + gamma**2 * continues", "delta**2 + gamma * continues"),
        ("deep-variance-never-ends", "gamma**2 * continues * next_variance", "gamma**2 * next_variance"),
        ("deep-moment-cross-term-once", "2.0 * gamma * reward * next_value", "gamma * reward * next_value"),
        ("advantages-look-past-ends", "discount * lam * running * later", "discount * lam * later"),
        ("d-not-discounted", "here.luck + here.discount * delta", "here.luck + delta"),
        ("n-without-gamma", "visits=1.0 + gamma * here.visits", "visits=1.0 + here.visits"),
        ("m-with-gamma", "gamma**2 * here.squared_visits", "gamma * here.squared_visits"),
        ("e-without-m", "here.recent_luck + here.squared_visits * delta", "here.recent_luck + delta"),
        ("e-not-discounted", "gamma * (here.recent_luck + ", "(here.recent_luck + "),
        ("deep-collected-gamma-once", "here.discount**2 * reward", "here.discount * reward"),
        ("start-value-of-now", "jnp.where(trace.begun > 0.0, trace.start_value, value)", "value"),
        ("traces-outlive-episodes", "keep = running * valid", "keep = valid"),
        ("traces-of-idle-steps", "keep = running * valid", "keep = running"),
        ("luck-without-units", "            luck=self.luck * factor", "            luck=self.luck"),
        ("recent-luck-without-units", "recent_luck=self.recent_luck * factor", "recent_luck=self.recent_luck"),
        ("start-value-without-units", "start_value=self.start_value * factor", "start_value=self.start_value"),
    ),
    ("deep/penalties.py", ESTIMATORS): (
        ("luck-without-start", "trace.luck + trace.start_value - reference, trace.discount", "trace.luck, trace.discount"),
        ("reference-added", "trace.start_value - reference", "trace.start_value + reference"),
        ("share-of-late-steps", "- reference, trace.discount", "- reference, 0.0 * trace.discount + 1.0"),
        ("uniform-luck-not-divided", "trace.recent_luck / trace.visits", "trace.recent_luck"),
        ("uniform-share-not-divided", "trace.squared_visits / trace.visits", "trace.squared_visits"),
        ("deep-luck-once", "2.0 * luck * advantage", "luck * advantage"),
        ("share-ignored", "share * variance_advantage", "variance_advantage"),
        ("deep-vaac-collected-not-discounted", "gamma * trace.collected", "trace.collected"),
        ("deep-vaac-start-value-added", " - trace.start_value", " + trace.start_value"),
        ("moment-for-variance-advantage", "moment_advantage - 2.0 * value", "moment_advantage + 2.0 * value"),
    ),
    ("deep/estimate.py", ESTIMATE): (
        ("traces-carried-in-scaled-units", "carried.times(1.0 / scale)", "carried"),
        ("traces-not-rescaled", "trace.times(scale)", "trace"),
        ("vaac-target-not-squared", "gamma, 1.0) + value) ** 2", "gamma, 1.0) + value)"),
        ("vaac-target-of-td", "target = (batch.advantages(values.delta, gamma, 1.0) + value) ** 2", "target = target + 0.0"),
        ("vaac-target-with-lambda", "gamma, 1.0) + value) ** 2", "gamma, lam) + value) ** 2"),
        ("value-target-ignores-lambda", "(delta, gamma, target_lam)", "(delta, gamma, lam)"),
        ("spread-target-ignores-lambda", "(error, gamma**2, target_lam)", "(error, gamma**2, lam)"),
        ("spread-target-gamma-once", "(error, gamma**2, target_lam)", "(error, gamma, target_lam)"),
        ("variance-advantage-gamma-once", "= variance_advantage = batch.advantages(error, gamma**2, lam)",
         "= variance_advantage = batch.advantages(error, gamma, lam)"),
        ("moment-advantage-gamma-once", "spread_advantage = batch.advantages(error, gamma**2, lam)",
         "spread_advantage = batch.advantages(error, gamma, lam)"),
        ("luck-critic-ignored", "luck if luck_critic is None else luck_critic(batch.begun)", "luck"),
        ("luck-critic-a-step-late", "luck_critic(batch.begun)", "luck_critic(batch.observations[1:])"),
        ("luck-critic-learns-from-itself", "weights, target, luck, rows", "weights, target, used, rows"),
        ("variance-of-ignored", 'stale = 0.0 if variance_of == "return" else', "stale ="),
        ("reference-in-raw-units", "weighting, scale * mean + stale", "weighting, mean + stale"),
        ("reference-of-this-rollout", "old + new for old, new", "new for old, new"),
        ("stale-critics-not-corrected", "rows.start_value - scale * expected", "rows.start_value - scale * mean"),
        ("starts-of-idle-steps", "batch.valid * (1.0 - rows.begun)", "(1.0 - rows.begun)"),
        ("starts-of-carried-episodes", "batch.valid * (1.0 - rows.begun)", "batch.valid"),
        ("return-without-start", "(last * (rows.start_value + luck))", "(last * luck)"),
        ("return-before-the-last-step", "luck_after = rows.luck + rows.discount * values.delta", "luck_after = rows.luck"),
        ("returns-of-episodes-underway", "batch.valid * (1.0 - batch.running)", "batch.valid"),
        ("start-variance-is-moment", "indirect = spread - value**2,", "indirect = spread,"),
        ("start-variance-scaled-once", "(first * predicted).sum() / scale**2", "(first * predicted).sum() / scale"),
        ("mean-with-discount-of-variance", "+ value) ** 2\n    weights = advantage - psi",
         "+ value) ** 2\n    weights = values.advantage - psi"),
        ("penalty-with-discount-of-mean", "penalties.corrected(values.advantage,", "penalties.corrected(advantage,"),
        ("vaac-penalty-with-discount-of-mean", "penalties.published_vaac(values.advantage,",
         "penalties.published_vaac(advantage,"),
        ("moment-with-discount-of-mean", "(spread_advantage, value, values.advantage)", "(spread_advantage, value, advantage)"),
        ("published-is-reversed", 'psi * used * (form == "corrected")', "psi * used"),
        ("reversed-at-half", "2.0 * luck > 1.0", "luck > 1.0"),
        ("penalty-share-of-weights", '"penalty_share": jnp.sqrt(batch.variance(penalty))',
         '"penalty_share": jnp.sqrt(batch.variance(weights))'),
        ("nothing-behind-the-rollout", ".at[-1].set(1.0)", ""),
        ("measured-behind-gamma-once", "(gamma**2 * cut * batch", "(gamma * cut * batch"),
        ("successors-ignored", "if self.successors is None:", "if True:"),
        ("bias-with-lambda", "batch.mean(batch.advantages(values.delta, gamma, 1.0))",
         "batch.mean(batch.advantages(values.delta, gamma, lam))"),
        ("bias-of-idle-steps", "values.delta + batch.valid * (gamma", "values.delta + (gamma"),
        ("bias-behind-the-end", "(gamma * batch.continues - 1.0) * bias", "(gamma - 1.0) * bias"),
    ),
    ("deep/ppo.py", LEARNER): (
        ("traces-not-reset", "self.trace = EpisodeTrace.first(n)", "pass"),
        ("scale-not-reset", "self.reward_scale.restart()", "pass"),
        ("trace-not-carried", "self.trace = spread.trace", "pass"),
        ("psi-not-divided", "psi = asked / unit", "psi = asked"),
        ("psi-multiplied", "psi = asked / unit", "psi = asked * unit"),
        ("warm-up-ignored", "return self.full_psi * self.warm_up_at(self.timesteps)", "return self.full_psi"),
        ("warm-up-inverted", "min(1.0, timesteps / rise)", "max(0.0, 1.0 - timesteps / rise)"),
        ("warm-up-of-prices-ignored", "rollout.prices * self.warm_up_at(self.timesteps)", "rollout.prices"),
        ("schedules-warm-up", "if steady and rise else 1.0", "if rise else 1.0"),
        ("episodes-ignore-variance-gamma", "self.episode_prices, o.variance_gamma", "self.episode_prices, None"),
        ("episodes-not-kept", "self.window.add(spread.episodes)", "pass"),
        ("drift-a-step-late", "rollout.elapsed[:-1], rollout.valid", "rollout.elapsed[1:], rollout.valid"),
        ("floor-not-passed", "training_rewards(o.reward_floor,", "training_rewards(None,"),
        ("objective-of-rising-price", "self.full_psi if self.controller is None else self.psi", "self.psi"),
        ("objective-in-scaled-units", "return psi if raw else psi * self.reward_scale.value",
         "return psi * self.reward_scale.value if raw else psi"),
        ("extras-never-scaled", "self.context.add(rollout)", "pass"),
        ("critics-blind", "Batch.of(self.context.beside(rollout),", "Batch.of(rollout,"),
    ),
    ("deep/estimate.py", LEARNER): (
        ("variance-gamma-ignored", "priced, priced_batch = o.priced_gamma,", "priced, priced_batch = o.gamma,"),
        ("score-goes-on-after-the-limit", "priced_batch = batch._replace(continues=batch.running)", "pass"),
        ("score-ignored", "priced = estimate_value(networks.score,", "priced = estimate_value(networks.value,"),
        ("target-lambda-ignored", "o.gae_lambda if o.target_lambda is None else o.target_lambda", "o.gae_lambda"),
        ("luck-critic-not-asked", "networks.luck, kind=kind", "None, kind=kind"),
        ("luck-learns-the-spread", 'targets["luck"] = spread.luck', 'targets["luck"] = spread.target'),
        ("spread-learns-the-value", 'targets["spread"] = spread.target', 'targets["spread"] = values.target'),
        ("never-recentred", 'o.form == "corrected" and o.weighting == "uniform"', "False"),
        ("start-recentred", 'o.form == "corrected" and o.weighting == "uniform"', 'o.form == "corrected"'),
        ("weights-without-penalty", "return spread.weights, targets", "return values.advantage, targets"),
    ),
    ("deep/diagnostics.py", LEARNER): (
        ("mean-given-psi-not-fitted", "deviation - slope * price", "deviation"),
        ("line-without-its-two-numbers", "xp.maximum(n - 2, 1)", "xp.maximum(n, 1)"),
        ("objective-without-price", "mean(psi * (deviation", "mean((deviation"),
    ),
    ("deep/ppo.py", GUARDS): (
        ("drift-felt-in-scaled-units", "float(np.mean(psi)) * scale", "float(np.mean(psi))"),
        ("drift-warned-of-at-once", "2 * self.timesteps > self.span[1]", "True"),
        ("drift-warned-of-again", " and not self._warned", ""),
        ("drift-of-published-form", 'if self.options.form == "corrected" and', "if"),
    ),
    ("deep/normaliser.py", CONTEXT): (
        ("successor-at-the-same-time", "rollout.elapsed[:-1] + 1.0", "rollout.elapsed[:-1]"),
        ("successor-after-a-restart", "rollout.elapsed[:-1] + 1.0", "rollout.elapsed[1:]"),
        ("time-from-zero", "raw[..., :1] / self.limit - 1.0", "raw[..., :1] / self.limit"),
        ("successor-with-extras-of-here", "+ 1.0, rollout.successor_extras", "+ 1.0, rollout.extras[:-1]"),
        ("time-of-idle-steps", "[:-1][rollout.valid > 0.0]", "[:-1].reshape(-1, self.columns)"),
        ("context-not-bounded", "xp.clip(scaled, -BOUND, BOUND)", "scaled"),
        ("limit-ignored", "self.time_aware and self.limit is not None", "False"),
    ),
    ("deep/collect.py", CONTEXT): (
        ("time-restarts-at-the-end", "self.valid == 0.0 if self.successors is None else", ""),
        ("time-restarts-with-rollouts", "self.elapsed[0] = first", "self.elapsed[0] = 0.0"),
    ),
    ("deep/diagnostics.py", GUARDS): (
        ("drift-given-survival", "after[acted & ended]", "[]"),
        ("drift-ends-late", "(elapsed + 1.0 <= k)", "(elapsed + 1.0 < k)"),
        ("drift-of-idle-steps", "before[acted & now]", "before[now]"),
        ("drift-never-forgotten", "self.sums = self.sums * self.keep", "pass"),
        ("drift-of-few-samples", ">= FEWEST_SAMPLES", ">= 0.0"),
        ("drift-upwards-alone", "xp.argmax(xp.abs(share))", "xp.argmax(share)"),
        ("drift-felt-once", "abs(2.0 * psi * mean)", "abs(psi * mean)"),
        ("drift-sure-upwards-alone", "abs(errors) > SURE_DRIFT", "errors > SURE_DRIFT"),
        ("drift-of-any-size", "abs(share) > LARGE_DRIFT and ", ""),
        ("episodes-never-forgotten", "sums * xp.repeat(kept, 3) + new", "sums + new"),
        ("episodes-forgotten-together", "xp.repeat(kept, 3)", "kept[0]"),
    ),
    ("deep/improve.py", UPDATES): (
        ("policy-decay-not-passed", "(o.max_grad_norm, o.weight_decay,", "(o.max_grad_norm, 0.0,"),
        ("critic-decay-not-passed", "critic_max_grad_norm, o.weight_decay,", "critic_max_grad_norm, 0.0,"),
        ("critics-clipped-as-policy", "o.critic_max_grad_norm", "o.max_grad_norm"),
        ("entropy-does-not-fade", "rules.entropy * share**2", "rules.entropy"),
        ("entropy-fades-slowly", "rules.entropy * share**2", "rules.entropy * share"),
        ("critics-with-rate-of-policy", "rate=critic_rate", "rate=rate"),
        ("rates-do-not-fall", "jnp.float32(rules.rate * share)", "jnp.float32(rules.rate)"),
        ("critics-learn-one-target", "targets=flat(target)", 'targets=flat(targets["value"])'),
        ("all-critics-positive", "positive = name == \"spread\" and not quantiles", "positive = not quantiles"),
    ),
    ("deep/options.py", PRESETS): (
        ("preset-reward-scale", '"reward_scale": 0.01', '"reward_scale": 0.1'),
        ("preset-target-lambda", '"target_lambda": 1.0,', '"target_lambda": 0.95,'),
        ("preset-discount", '"gamma": 0.99,', '"gamma": 0.999,'),
        ("preset-weight-decay", '"weight_decay": 0.01,', '"weight_decay": 0.0,'),
    ),
    ("lab/experiments/mujoco.py", SPECS): (
        ("todays-prices", "SCALED = 100.0", "SCALED = 10.0"),
        ("todays-vaac-price", "arms=_arms(psi / SCALED, 0.15 / SCALED, {})", "arms=_arms(psi / SCALED, 0.15, {})"),
    ),
}  # fmt: skip
"""(file, nearest tests): (name, text, replacement) of each error."""

MUTANTS = tuple(
    Mutant(name, file, text, replacement, tests)
    for (file, tests), rows in TABLE.items()
    for name, text, replacement in rows
)


def run(tests: Tests, source: Path, scratch: Path, timeout: float) -> tuple[int | None, str]:
    """Pytest's exit code and output for the tests against a copy of src; None if it takes too long.

    JAX finds compiled programs by what they compute, so all mutants share its cache; Numba by file, so each has its own.
    """
    env = os.environ | {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(scratch),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax-mutants"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "NUMBA_DISABLE_JIT": "0" if tests.compiled else "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", *tests.arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return None, output
        raise
    return process.returncode, output


def copied(folder: Path) -> Path:
    """A copy of src in a folder."""
    return Path(shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__")))


def tried(mutant: Mutant, timeout: float) -> Result:
    """Make the mutant and run its tests."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        source = copied(Path(folder))
        path = source / "vpac" / mutant.file
        content = mutant.applied(path.read_text(encoding="utf-8")) if path.exists() else None
        if content is None:
            return Result(mutant, "stale", 0.0, "text not found exactly once")
        path.write_text(content, encoding="utf-8")
        code, output = run(mutant.tests, source, Path(folder), timeout)
    verdict, detail = judged(code, output)
    return Result(mutant, verdict, time.monotonic() - began, detail)


def judged(code: int | None, output: str) -> tuple[str, str]:
    """What pytest's exit code means: 1, tests failed; 0, all passed; else they could not be run."""
    if code == 0:
        return "survived", ""
    if code == 1:
        found = re.search(r"^(?:FAILED|ERROR) \S*?(\w+\.py::\w+)", output, re.MULTILINE)
        return "killed", found[1] if found else ""
    return "broken", "took too long" if code is None else f"pytest ended with {code}"


def baseline(mutants: list[Mutant], timeout: float) -> dict[Tests, float]:
    """Seconds that each group of tests takes on the unmutated copy; exits if one does not pass."""
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        source = copied(Path(folder))
        where = subprocess.run(
            [sys.executable, "-c", "import vpac; print(vpac.__file__)"],
            env=os.environ | {"PYTHONPATH": str(source)}, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        if not where.startswith(str(source)):
            raise SystemExit(f"tests would import {where.strip()} and not the copy")
        for tests in dict.fromkeys(mutant.tests for mutant in mutants):
            began = time.monotonic()
            code, output = run(tests, source, Path(folder), timeout)
            if code != 0:
                raise SystemExit(f"the unmutated source fails: {' '.join(tests.arguments)}\n{output}")
            seconds[tests] = time.monotonic() - began
            print(f"unmutated, passed     {seconds[tests]:6.1f} s  {' '.join(tests.arguments)}", flush=True)
    return seconds


def results(mutants: list[Mutant], expected: dict[Tests, float], jobs: int, timeout: float) -> Iterator[Result]:
    """Try them all, and print a line for each as it ends."""
    began, done, total = time.monotonic(), 0.0, sum(expected[mutant.tests] for mutant in mutants)
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(tried, mutant, timeout) for mutant in mutants]
        try:
            for number, future in enumerate(as_completed(waiting), 1):
                result = future.result()
                done += expected[result.mutant.tests]
                left = (time.monotonic() - began) * (total - done) / done
                print(
                    f"[{number:3}/{len(mutants)}] {result.verdict:8} {result.seconds:6.1f} s  {result.mutant.file:25} "
                    f"{result.mutant.name:33} {result.detail}  ({left / 60.0:.1f} min left)",
                    flush=True,
                )
                yield result
        finally:
            for future in waiting:
                future.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these mutants and no others")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time (default: 1)")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for one run of tests (default: 300)"
    )
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    options = parser.parse_args()
    unknown = set(options.only) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"unknown mutant {', '.join(sorted(unknown))}; see --list")
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name}: {mutant.file}\n    − {mutant.text}\n    + {mutant.replacement}")
        return 0
    expected = baseline(chosen, options.timeout)
    found = list(results(chosen, expected, max(1, options.jobs), options.timeout))
    alive = [result for result in found if result.verdict != "killed"]
    print(f"\n{len(found) - len(alive)} of {len(found)} killed")
    for result in alive:
        print(f"{result.verdict}: {result.mutant.name} ({result.mutant.file}) {result.detail}".rstrip())
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
