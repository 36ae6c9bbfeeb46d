"""Two rollouts of five steps, with termination, truncation and an idle step, against explicit loops (`plain_rollout`)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from plain_rollout import Past, Row, assess, delta_of, ended, first_rows, gae

jnp = pytest.importorskip("jax.numpy")

from vpac.deep.estimate import Batch, EpisodeSums, estimate_spread, estimate_value, recentred  # noqa: E402
from vpac.deep.estimators import EpisodeTrace  # noqa: E402
from vpac.deep.networks import MLP, Critic  # noqa: E402

GAMMA, LAM, PSI = 0.9, 0.8, 0.3
SCALES = (0.5, 1.7)
"""Of the reward, in the first rollout and in the second."""
BEFORE = (3.0, 4.2, 5.0, 2.0, 2.6, 1.4)
"""Episodes that began earlier with sums of their V(S_0) and σ(S_0), and that ended with sums of their G and V(S_0), raw."""
RUNNING = np.array([[[1, 1], [0, 1], [1, 1], [1, 0], [1, 1]], [[1, 1], [0, 1], [1, 1], [1, 1], [0, 1]]], np.float32)
"""The first environment: two steps and an end, an idle step, an episode that is cut off in the second rollout, an idle step, an
episode of two steps that ends. The second: four steps and a cut, an idle step, then a long episode."""
CONTINUES = np.array([[[1, 1], [0, 1], [1, 1], [1, 1], [1, 1]], [[1, 1], [1, 1], [1, 1], [1, 1], [0, 1]]], np.float32)
IDLE = np.array([[[0, 0], [0, 0], [1, 0], [0, 0], [0, 1]], [[0, 0], [0, 0], [1, 0], [0, 0], [0, 0]]], np.float32)


def table(numbers, positive=False) -> Critic:
    """A critic that gives each one-hot row its number."""
    numbers = np.log(np.expm1(numbers)) if positive else numbers
    return Critic(MLP([jnp.asarray(numbers[:, None], jnp.float32)], [jnp.zeros(1)], "tanh"), positive)


class Piece:
    """A rollout with made-up critics: every row of observations has numbers of its own."""

    def __init__(self, number: int, same_step: bool) -> None:
        rng = np.random.default_rng(7 + number)
        self.scale, rows = SCALES[number], 22 if same_step else 12
        self.value_of, self.luck_of = rng.normal(size=(2, rows)).round(2)
        self.spread_of = rng.uniform(0.5, 3.0, rows).round(2)
        self.rewards = rng.normal(0.3, 1.0, (5, 2)).round(2).astype(np.float32)
        self.continues, self.running = CONTINUES[number], RUNNING[number]
        self.valid = np.ones((5, 2), np.float32) if same_step else 1.0 - IDLE[number]
        self.here = np.arange(12).reshape(6, 2)
        self.after = 12 + np.arange(10).reshape(5, 2) if same_step else self.here[1:]
        eye = np.eye(rows, dtype=np.float32)
        self.batch = Batch(
            jnp.asarray(eye[self.here]), jnp.asarray(eye[self.after]) if same_step else None,
            jnp.asarray(self.rewards * self.valid), *(jnp.asarray(x) for x in (self.continues, self.running, self.valid)),
        )  # fmt: skip

    def rows(self, env: int) -> list[Row]:
        here, after = self.here[:5, env], self.after[:, env]
        columns = (
            self.rewards[:, env] * self.valid[:, env], self.value_of[here], self.value_of[after], self.spread_of[here],
            self.spread_of[after], self.continues[:, env], self.running[:, env], self.valid[:, env],
        )  # fmt: skip
        return [Row(*(float(x) for x in row)) for row in zip(*columns, strict=True)]


def found_of(pieces, kind, form, weighting, variance_of, target_lam, with_luck, front):
    """What the code makes of the pieces, one after the other."""
    trace, before, found = EpisodeTrace.first(2), EpisodeSums(*(np.float32(x) for x in BEFORE)), []
    how = {"gamma": GAMMA, "lam": LAM, "target_lam": target_lam}
    for piece in pieces:
        values = estimate_value(table(piece.value_of), piece.batch, **how)
        advantage = values.advantage if front is None else jnp.asarray(front)
        estimate = estimate_spread(
            table(piece.spread_of, True), piece.batch, advantage, values, trace, before, jnp.float32(PSI),
            jnp.float32(piece.scale), table(piece.luck_of) if with_luck else None, kind=kind, form=form, weighting=weighting,
            variance_of=variance_of, **how,
        )  # fmt: skip
        trace, before = (
            estimate.trace,
            EpisodeSums(*(0.9 * x + y for x, y in zip(before, estimate.episodes, strict=True))),
        )
        found.append((values, estimate))
    return found


def expected_of(pieces, kind, form, weighting, variance_of, target_lam, with_luck, front):
    """The same with loops: for each piece the rows of both environments, and the sums over what began and ended there."""
    past, before, found = [Past(), Past()], list(BEFORE), []
    for piece in pieces:
        all_rows = [piece.rows(env) for env in range(2)]
        starts = [row[t] for one, row in zip(past, all_rows, strict=True) for t in first_rows(one, row)]
        spreads = [row.spread if kind == "variance" else row.spread - row.value**2 for row in starts]
        ends = [pair for one, row in zip(past, all_rows, strict=True) for pair in ended(one, row, piece.scale, GAMMA)]
        sums = [len(starts), sum(r.value for r in starts) / piece.scale, sum(spreads) / piece.scale**2]
        sums += [len(ends), sum(g for g, _ in ends), sum(v for _, v in ends)]
        count, total, expected = (x + y for x, y in zip(before[3:], sums[3:], strict=True))
        answers = []
        for env in range(2):
            past[env], numbers = assess(
                past[env], all_rows[env], scale=piece.scale, psi=PSI, kind=kind, form=form, weighting=weighting, gamma=GAMMA,
                lam=LAM, target_lam=target_lam, mean_return=piece.scale * total / count if variance_of == "return" else None,
                surplus=piece.scale * (total - expected) / count,
                used_luck=[float(piece.luck_of[i]) for i in piece.here[:5, env]] if with_luck else None,
                advantage=None if front is None else [float(x) for x in front[:, env]],
            )  # fmt: skip
            answers.append(numbers)
        found.append((answers, sums))
        before = [0.9 * x + y for x, y in zip(before, sums, strict=True)]
    return found


FORMS = [
    ("corrected", "start", "return"), ("corrected", "start", "state"), ("corrected", "uniform", "return"),
    ("published", "start", "return"),
]  # fmt: skip


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def compare(pieces, *how):
    for piece, (values, estimate), (answers, sums) in zip(
        pieces, found_of(pieces, *how), expected_of(pieces, *how), strict=True
    ):
        rows = {
            name: np.zeros((5, 2))
            for name in ("weight", "target", "luck", "value_target", "penalty", "advantage", "reversed")
        }
        for name, env, t in itertools.product(rows, range(2), range(5)):
            rows[name][t, env] = 0.0 if answers[env][t] is None else answers[env][t][name]
        valid = piece.valid > 0.0
        close(np.asarray(values.target)[valid], rows["value_target"][valid])
        close(np.asarray(estimate.weights)[valid], rows["weight"][valid])
        close(np.asarray(estimate.target)[valid], rows["target"][valid])
        close(np.asarray(estimate.luck)[valid], rows["luck"][valid])
        close([float(x) for x in estimate.episodes], sums)
        size = rows["advantage"][valid].std()
        close(float(estimate.metrics["penalty_share"]), rows["penalty"][valid].std() / size)
        close(float(estimate.metrics["weight_share"]), rows["weight"][valid].std() / size)
        close(float(estimate.metrics["reversed_share"]), rows["reversed"][valid].mean())


@pytest.mark.parametrize("kind", ["variance", "moment"])
@pytest.mark.parametrize(("form", "weighting", "variance_of"), FORMS)
@pytest.mark.parametrize("target_lam", [0.5, 1.0])
def test_weights_targets_luck_and_sums_of_two_rollouts(kind, form, weighting, variance_of, target_lam):
    """The scale of rewards moves between them, and an episode goes on from one to the other."""
    pieces = [Piece(number, same_step=False) for number in range(2)]
    compare(pieces, kind, form, weighting, variance_of, target_lam, False, None)


@pytest.mark.parametrize("kind", ["variance", "moment"])
@pytest.mark.parametrize(("form", "weighting", "variance_of"), FORMS)
def test_the_mean_luck_of_a_critic_and_the_advantage_of_another_discount(kind, form, weighting, variance_of):
    """Episodes begin within the step that ends the one before, so that successors are not the next rows."""
    pieces = [Piece(number, same_step=True) for number in range(2)]
    front = np.random.default_rng(5).normal(size=(5, 2)).astype(np.float32)
    compare(pieces, kind, form, weighting, variance_of, 0.5, True, front)


def test_what_is_carried_is_in_raw_units():
    """After the first rollout the first environment is two steps into an episode, the second begins one."""
    piece = Piece(0, same_step=False)
    _, estimate = found_of([piece], "variance", "corrected", "start", "state", LAM, False, None)[0]
    rows = piece.rows(0)
    one, two = (delta_of(rows[t], GAMMA) / piece.scale for t in (3, 4))
    expected = {
        "luck": one + GAMMA * two,
        "discount": GAMMA**2,
        "recent_luck": GAMMA * (GAMMA * one + (1 + GAMMA**2) * two),
        "visits": 1 + GAMMA + GAMMA**2,
        "squared_visits": 1 + GAMMA**2 + GAMMA**4,
        "collected": (rows[3].reward + GAMMA**2 * rows[4].reward) / piece.scale,
        "start_value": rows[3].value / piece.scale,
        "begun": 1.0,
    }
    assert {name: float(x[0]) for name, x in estimate.trace._asdict().items()} == pytest.approx(expected, rel=1e-5)
    assert [float(x[1]) for x in estimate.trace] == [float(x[0]) for x in EpisodeTrace.first(1)]


@pytest.mark.parametrize("kind", ["variance", "moment"])
def test_predicted_and_measured_variance(kind):
    """(G − V)², and behind a cut γ^2L times the variance that is predicted there."""
    piece = Piece(1, same_step=False)
    _, estimate = found_of([piece], kind, "corrected", "start", "state", LAM, False, None)[0]
    predicted, measured = [], []
    for rows in (piece.rows(0), piece.rows(1)):
        deltas = [delta_of(row, GAMMA) for row in rows]
        for t, row in enumerate(rows):
            if not row.valid:
                continue
            last = next(i for i in range(t, 5) if i == 4 or not rows[i].running)
            there = rows[last]
            of = (row.spread, there.next_spread) if kind == "variance" else (
                row.spread - row.value**2, there.next_spread - there.next_value**2
            )  # fmt: skip
            predicted.append(of[0])
            behind = GAMMA ** (2 * (last - t + 1)) * there.continues * of[1]
            measured.append(gae(rows, deltas, t, GAMMA, 1.0) ** 2 + behind)
    close(float(estimate.metrics["predicted_variance"]), np.mean(predicted) / piece.scale**2)
    close(float(estimate.metrics["measured_variance"]), np.mean(measured) / piece.scale**2)


def test_explained_variance():
    """1 − Var(target − V) / Var(target), of the steps that count."""
    piece = Piece(0, same_step=False)
    values = estimate_value(table(piece.value_of), piece.batch, gamma=GAMMA, lam=LAM, target_lam=0.5)
    valid = piece.valid > 0.0
    target, value = np.asarray(values.target)[valid], np.asarray(values.value)[valid]
    close(float(values.explained), 1.0 - (target - value).var() / target.var())


@pytest.mark.parametrize("same_step", [False, True])
def test_a_value_that_is_wrong_everywhere_alike_is_recentred(same_step):
    """V + b with b the mean of G − V: the same numbers for V and for V + 3, and those of loops over the rows."""
    piece, how = Piece(1, same_step), {"gamma": GAMMA, "lam": LAM}
    bias = np.mean([
        gae(rows, [delta_of(row, GAMMA) for row in rows], t, GAMMA, 1.0)
        for rows in (piece.rows(0), piece.rows(1)) for t in range(5) if rows[t].valid
    ])  # fmt: skip
    values = estimate_value(table(piece.value_of), piece.batch, target_lam=LAM, **how)
    found = recentred(values, piece.batch, **how)
    assert abs(bias) > 0.1
    for env in range(2):
        rows = [row._replace(value=row.value + bias, next_value=row.next_value + bias) for row in piece.rows(env)]
        deltas = [delta_of(row, GAMMA) if row.valid else 0.0 for row in rows]
        valid = [t for t in range(5) if rows[t].valid]
        close(found.value[:, env], [row.value for row in rows])
        close(found.next_value[:, env], [row.next_value for row in rows])
        close(found.delta[:, env], deltas)
        close(found.advantage[valid, env], [gae(rows, deltas, t, GAMMA, LAM) for t in valid])
