"""Frontiers as runs of a store: resumable, in any order, evaluated exactly where possible."""

from __future__ import annotations

import numpy as np
import pytest

import vpac
from vpac import UserError
from vpac.envs.finite_mdp import FiniteMDP
from vpac.lab import frontier
from vpac.lab.frontier import FrontierSpec, PriceChoice, trace_frontier
from vpac.lab.kinds.frontier import Measurement, frontier_point, measurement
from vpac.lab.kinds.saved_agents import find_agents
from vpac.lab.kinds.task import perform
from vpac.lab.report.trade_off import TracedFrontier
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.oracle import evaluate, softmax, step_reward
from vpac.risk.measures import measure_of

WORLD = "vpac/RiskyShortcut-v0"


def spec(env, algorithm="vpac-ppo", **given):
    usual = {"env_settings": {}, "wrappers": (), "settings": {}, "length": 1000, "seeds": 3, "measure": 1000}
    return FrontierSpec(env, algorithm, **{**usual, "warm_up": 0.0, "seed": 0, **given})


QUESTION = spec(WORLD, "vpac", settings={"gamma": 0.9}, length=60, seeds=2)


class Backwards(Serial):
    """The last run first."""

    def run(self, store, runs):
        yield from super().run(store, list(runs)[::-1])


class FailingExecutor:
    """Fails if it gets a run."""

    def run(self, store, runs):
        raise AssertionError(f"asked to run {[run.name for run in runs]}")

    def close(self):
        pass


@pytest.fixture(scope="module", autouse=True)
def _few_exact_points():
    """The oracle's search takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "EXACT_POINTS", 2)
        yield


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    return store, trace_frontier(QUESTION, PriceChoice(points=6), store, Serial(), mvpi=True)


def test_points_are_measured_exactly(traced):
    store, found = traced
    mdp = FiniteMDP.from_gymnasium(WORLD)
    assert len(found.trade_off.points) == 6
    for point in found.trade_off.points:
        means, stds, steps = [], [], []
        for name in found.runs[point.psi]:
            policy = softmax(store.read(name).policy()["theta"])
            moments = evaluate(mdp, policy, 0.9, horizon=1000)
            means.append(moments.mean)
            stds.append(moments.total_variance**0.5)
            steps.append(step_reward(mdp, policy, 0.9).variance ** 0.5)
        assert point.mean.estimate == pytest.approx(np.mean(means), rel=1e-6)
        assert point.std.estimate == pytest.approx(np.mean(stds), rel=1e-6)
        assert point.volatility.estimate == pytest.approx(np.mean(steps), rel=1e-6)
        assert point.mean.low < point.mean.estimate < point.mean.high


def test_the_exact_frontier_lies_above(traced):
    _, found = traced
    assert found.exact is not None
    assert found.exact.psis[0] == 0.0
    assert max(found.exact.means) >= found.trade_off.means.max() - 1e-9
    assert found.exact.stds[-1] <= found.exact.stds[0]


def test_mvpi_stands_beside_it_at_the_same_risk_aversions(traced):
    _, found = traced
    volatility = found.trade_off.points[0].volatility.estimate
    ours = [point.psi * found.std for point in found.trade_off.points]
    theirs = [point.psi * volatility for point in found.mvpi.points]
    assert theirs == pytest.approx(ours, rel=0.01)
    assert found.mvpi.points[0].mean == found.trade_off.points[0].mean  # without a price both are AC


def test_what_is_finished_is_not_run_again(traced):
    store, found = traced
    again = trace_frontier(QUESTION, PriceChoice(points=6), Store(store.root), FailingExecutor(), mvpi=True)
    assert again.trade_off == found.trade_off
    assert again.exact == found.exact


def test_neither_order_nor_company_matters(traced, tmp_path):
    _, found = traced
    other = trace_frontier(QUESTION, PriceChoice(points=6), Store(tmp_path), Backwards())
    assert other.trade_off == found.trade_off
    assert [point.psi for point in other.trade_off.points] == [point.psi for point in found.trade_off.points]


def test_risk_aversion_is_over_the_risk_neutral_deviation(traced):
    store, found = traced
    other = trace_frontier(QUESTION, PriceChoice(aversions=(0.5,)), store, Serial())
    zero, one = other.trade_off.points
    assert zero.psi == 0.0
    assert one.psi == pytest.approx(0.5 / found.std, rel=0.005)  # three digits


def test_prices_may_be_named_and_a_warm_up_reaches_the_learner(tmp_path):
    question = spec(WORLD, "vpac", length=20, seeds=1, warm_up=0.25)
    store = Store(tmp_path)
    found = trace_frontier(question, PriceChoice(psis=(0.2,)), store, Serial())
    assert sorted(found.runs) == [0.0, 0.2]
    assert store.read(found.runs[0.2][0]).run.task["settings"]["psi"] == "warm-up:0.2:5:5"
    assert any("One seed" in note for note in found.notes)
    assert found.trade_off.points[0].mean.low == found.trade_off.points[0].mean.high  # exact, and there is one of it


def test_what_is_not_finite_is_played(tmp_path):
    question = spec(
        WORLD,
        "vpac",
        wrappers=(("RewardNoise", {"std": 3.0}),),
        length=20,
        seeds=1,
        measure=40,
        settings={"gamma": 0.9},
    )
    assert not question.solvable()
    store = Store(tmp_path)
    found = trace_frontier(question, PriceChoice(psis=(0.2,)), store, Serial())
    assert found.exact is None
    record = store.read(found.runs[0.2][0])
    returns = record.policy()["returns"]
    assert len(returns) == 40
    one = measurement(record)
    assert (one.mean, one.std) == (pytest.approx(returns.mean()), pytest.approx(returns.std(ddof=1)))
    squares = record.policy()["squares"]
    assert one.volatility == pytest.approx((0.1 * squares.mean() - (0.1 * returns.mean()) ** 2) ** 0.5)
    assert squares.mean() > 9.0  # the noise alone brings that much
    assert found.trade_off.points[0].mean.low < found.trade_off.points[0].mean.high


def test_the_ppo_family_is_played_too(tmp_path):
    pytest.importorskip("jax")
    small = {"envs": 4, "steps": 16, "epochs": 1, "minibatch": 32, "hidden": [8]}
    question = spec("probes:Bandit", length=128, seeds=2, measure=300, settings=small)
    store = Store(tmp_path)
    found = trace_frontier(question, PriceChoice(psis=(0.3,)), store, Serial(), mvpi=True)
    point = found.trade_off.points[0]
    assert not found.failed
    assert point.mean.estimate == pytest.approx(1.25, abs=0.3)
    # episodes of one step: rewards and returns are the same thing
    assert point.volatility.estimate == pytest.approx(point.std.estimate, rel=0.01)
    assert len(found.mvpi.points) == 2


def test_in_a_finite_world_the_ppo_family_is_measured_exactly(tmp_path):
    pytest.importorskip("jax")
    small = {"envs": 4, "steps": 16, "epochs": 1, "minibatch": 32, "hidden": [8], "gamma": 0.9}
    store = Store(tmp_path)
    question = spec(WORLD, length=128, seeds=1, measure=400, settings=small)
    found = trace_frontier(question, PriceChoice(psis=(0.3,)), store, Serial())
    point, record = found.trade_off.points[1], store.read(found.runs[0.3][0])
    assert point.mean.low == point.mean.high
    played = record.policy()["returns"]
    assert abs(point.mean.estimate - played.mean()) < 4.0 * played.std() / 20.0
    assert found.exact is not None


@pytest.mark.parametrize("penalty", ["gini", "cvar:0.2", "volatility"])
def test_another_measure_has_the_price_and_the_axis(tmp_path, penalty):
    settings, mdp = {"gamma": 0.9, "penalty": penalty}, FiniteMDP.from_gymnasium(WORLD)
    store, question = Store(tmp_path), spec(WORLD, "vpac", settings=settings, length=40, seeds=2)
    found = trace_frontier(question, PriceChoice(aversions=(0.5,)), store, Serial())
    assert found.exact is None
    measure = measure_of(penalty)
    for point in found.trade_off.points:
        policies = [softmax(store.read(name).policy()["theta"]) for name in found.runs[point.psi]]
        horizon = None if penalty == "volatility" else 1000
        exact = [measure.exact(mdp, policy, 0.9, horizon) for policy in policies]
        assert point.measure.estimate == pytest.approx(np.mean(exact), rel=1e-6)
        assert point.measure.low < point.measure.estimate < point.measure.high
    first, second = found.trade_off.points
    scale = first.volatility.estimate if penalty == "volatility" else 1.0
    assert second.psi == pytest.approx(0.5 / scale, rel=0.005)
    summary = TracedFrontier(found)
    data = summary.as_dict()
    assert (data["penalty"], data["points"][0]["measure"]["estimate"]) == (penalty, first.measure.estimate)
    assert data["points"][1]["removes"] == pytest.approx(1.0 - second.measure.estimate / first.measure.estimate)
    assert measure.words in summary.charts()[0].panels[0].x_label
    assert all("Sharpe" not in words for words in found.trade_off.advice())


def test_the_variance_has_no_field_more(traced):
    data = TracedFrontier(traced[1]).as_dict()
    assert "penalty" not in data
    assert all("measure" not in point for point in data["points"])


def test_intervals_of_seeds_and_of_episodes():
    rng = np.random.default_rng(0)
    returns = rng.normal(5.0, 2.0, 400)
    alone = frontier_point(0.1, [Measurement(returns.mean(), returns.std(ddof=1), 1.0, returns)])
    assert alone.mean.high - alone.mean.low == pytest.approx(2 * 1.966 * returns.std(ddof=1) / 20, rel=0.01)
    assert alone.std.low < 2.0 < alone.std.high
    several = frontier_point(0.1, [Measurement(m, s, None, None) for m, s in ((4.0, 0.1), (5.0, 0.2), (6.0, 0.0))])
    assert several.mean.high == pytest.approx(5.0 + 4.3027 / 3**0.5, rel=1e-4)
    assert several.std.low == 0.0  # not below
    assert several.volatility is None


def test_a_learner_that_cannot_learn_is_named(tmp_path):
    question = spec(WORLD, "vpac", length=5, seeds=1, settings={"alpha_w": 1e200, "alpha_z": 1e200})
    with pytest.raises(UserError, match=r"no run at ψ = 0 came to its end: .*not finite"):
        trace_frontier(question, PriceChoice(psis=(0.1,)), Store(tmp_path), Serial())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"algorithm": "ac"}, "'ac' has no frontier: expected an algorithm with a price of variance, vpac"),
        ({"algorithm": "vpac-pp0"}, "did you mean 'vpac-ppo'"),
        ({"settings": {"psi": 0.1}}, "psi is what a frontier varies"),
        ({"warm_up": 0.9}, "warm-up must be a share of the training from 0 to 0.5"),
        ({"seeds": 0}, "seeds must be a whole number from 1 up"),
        ({"measure": 1}, "measure must be a whole number from 2 up"),
        ({"algorithm": "vaac", "settings": {"penalty": "gini"}}, "vaac has no choice of penalties, got 'gini'"),
        ({"algorithm": "vpac", "settings": {"penalty": "volatility", "gamma": 1.0}}, "below gamma = 1 only"),
    ],
)
def test_mistakes_are_named(wrong, words):
    with pytest.raises(UserError, match=words):
        spec(WORLD, **wrong)


def test_prices_must_be_prices():
    for wrong in ({"psis": (-1.0,)}, {"aversions": (float("nan"),)}, {"points": 1}):
        with pytest.raises(UserError, match="must be"):
            PriceChoice(**wrong)


def test_a_stored_policy_that_remembers_its_return_is_measured_and_found(tmp_path):
    pytest.importorskip("jax")
    settings = {"psi": 0.1, "gamma": 0.9, "remember": "return", "envs": 2, "steps": 8, "epochs": 1, "hidden": [4]}
    task = {
        "kind": "deep", "env": "vpac/CatchUp-v0", "env_settings": {}, "algorithm": "vpac-ppo", "settings": settings,
        "steps": 16, "episodes": 4, "fixed_start": {},
    }  # fmt: skip
    run, store = Run(task, 0, 1), Store(tmp_path)
    store.write(run, perform(run, Scratch(tmp_path / "scratch")), {})
    assert len(measurement(store.read(run.name)).returns) == 4
    ((agent, env),) = find_agents(run.name, tmp_path).values()
    assert agent.memory == {"gamma": 0.9}
    assert len(vpac.evaluate(agent, env, 3)) == 3
