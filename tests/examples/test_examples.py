"""The worked examples: correct environments, and runs at small scale."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from seeds import bounds, seeds
from shop import shop as shop_process
from vpac.envs import check_env, make_env
from vpac.evaluation import certify
from vpac.oracle import evaluate, optimal_policy, softmax
from vpac.risk import Limit, PolicyCertificate

FOLDER = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def example():
    """Loads an example by its name, once."""
    names = []

    def load(name):
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            names.append(name)
        return sys.modules[name]

    yield load
    for name in names:
        sys.modules.pop(name)


@pytest.mark.parametrize("path", ["inventory:Inventory", "portfolio:Portfolio", "dependable:Battery"])
def test_they_can_be_learned_from(example, path):
    example(path.partition(":")[0])
    assert check_env(make_env(path)).remarks == []


@pytest.mark.slow  # 20 trainings of 40 000 steps: four learners, five seeds each
@pytest.mark.filterwarnings("ignore:the luck of episodes has a drift")  # so few steps teach critics little
def test_the_shop_of_the_documentation_gains_by_its_price(tmp_path, monkeypatch):
    """Policies do not see the week, critics do: U = mean − ψ · variance of the default is above PPO's beyond its error, and
    no form is below it."""
    pytest.importorskip("jax")
    from vpac.deep import PPO, VPACPPO

    page = (FOLDER.parent / "docs" / "your-environment.md").read_text(encoding="utf-8")
    (tmp_path / "shop_of_the_docs.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    shop, given = "shop_of_the_docs:Shop", {"weeks": 12, "price": 9}
    assert check_env(make_env(shop, weeks=4)).lengths == [4] * 20
    process, psi = shop_process(), 0.05
    settings = {
        "arguments": given,
        "gamma": 1.0,
        "envs": 48,
        "steps": 24,
        "epochs": 4,
        "minibatch": 288,
        "hidden": (16,),
    }

    def objectives(kind, **more):
        """Exact mean − ψ · variance of twelve weeks, one for each seed."""
        agents = [kind(shop, seed=seed, **settings, **more).learn(40_000) for seed in seeds()]
        logits = [np.asarray(agent.policy().outputs(np.eye(21, dtype=np.float32)), np.float64) for agent in agents]
        moments = evaluate(process, softmax(np.stack(logits)), 1.0, horizon=12)
        return moments.mean - psi * moments.total_variance

    neutral = objectives(PPO)
    gains = [
        objectives(VPACPPO, psi=psi, **more) - neutral for more in ({}, {"weighting": "uniform"}, {"form": "published"})
    ]
    assert bounds(gains[0])[0] > 0.0
    assert min(bounds(gain)[1] for gain in gains) > 0.0
    sys.modules.pop("shop_of_the_docs")


def test_a_shop_of_one_week_is_the_newsvendor(example):
    """Order until the chance that one more is sold falls to (cost − salvage + holding) / (price − salvage + holding)."""
    shop = example("inventory").Inventory(
        weeks=1, shelf=8, order=8, demand=3.0, price=10.0, cost=6.0, holding=0.5, salvage=2.0
    )
    chances = np.exp(-3.0) * np.cumprod([1.0, *(3.0 / k for k in range(1, 40))])
    best = next(q for q in range(9) if chances[q + 1 :].sum() < (6.0 - 2.0 + 0.5) / (10.0 - 2.0 + 0.5))
    assert np.argmax(optimal_policy(shop.mdp, 1.0)[0]) == best
    sold = np.minimum(np.arange(40), best)
    profit = 10.0 * sold - 6.0 * best + (2.0 - 0.5) * (best - sold)
    moments = evaluate(shop.mdp, np.eye(9)[np.full(shop.mdp.n_states, best)], 1.0)
    assert moments.mean == pytest.approx(chances @ profit)
    assert moments.total_variance == pytest.approx(chances @ profit**2 - (chances @ profit) ** 2)


def test_a_portfolio_in_stocks_has_the_moments_it_should(example):
    module = example("portfolio")
    gains = module.play(lambda observation: 4, 3000)
    assert abs(gains.mean() - 8 * 2.5) < 4 * gains.std() / 3000**0.5
    assert np.all(module.play(lambda observation: 0, 5) == pytest.approx(8 * 0.5))
    assert module.textbook(0.0)(np.array([0.0, 1.0])) == 4
    assert [module.textbook(0.05)(np.array([0.0, mood])) for mood in (0.0, 0.25, 1.0)] == [4, 4, 1]


def test_the_rule_is_played_often_enough_to_be_a_yardstick(example):
    """All stocks: quarters are independent given the moods, so the mean is 8 · 2.5; and side by side is one by one."""
    module = example("portfolio")
    gains = module.play_many(module.textbook(0.0), 200_000)
    assert abs(gains.mean() - 20.0) < 4.0 * gains.std() / 200_000**0.5 < 0.25
    one, many = module.play(module.textbook(0.05), 2000), module.play_many(module.textbook(0.05), 50_000)
    error = (one.var() / len(one) + many.var() / len(many)) ** 0.5
    assert abs(one.mean() - many.mean()) < 4.0 * error
    kurtosis = ((many - many.mean()) ** 4).mean() / many.var() ** 2
    assert one.var() == pytest.approx(many.var(), rel=4.0 * ((kurtosis - 1.0) * (1 / 2000 + 1 / 50_000)) ** 0.5)


def test_bars_of_the_portfolio_hold_the_luck_of_training(example):
    """Two trainings that differ by 10 percent, each measured very precisely: the interval reaches from one to the other."""
    module = example("portfolio")
    rng = np.random.default_rng(0)
    learned = {0.0: [rng.normal(mean, 1.0, 10_000) for mean in (9.0, 11.0)], 0.05: [rng.normal(5.0, 0.5, 10_000)] * 2}
    drawn = module.frontier_chart(learned, {psi: rng.normal(12.0, 1.0, 100) for psi in learned})
    rule, found = drawn.panels[0].series
    assert found.names == ("ψ = 0", "ψ = 0.05")
    assert found.low[0] < 9.0 < 11.0 < found.high[0]
    assert rule.low[0] < rule.y[0] < rule.high[0]
    assert rule.x_low[0] < rule.x[0] < rule.x_high[0]
    assert "2 trainings" in drawn.foot


def test_a_risk_averse_shopkeeper_keeps_less(example):
    module = example("inventory")
    shop = module.Inventory(weeks=2, shelf=5, order=4, demand=2.0)
    one, other = (evaluate(shop.mdp, np.stack(module.train(shop, psi, 30_000, seeds())), 1.0) for psi in (0.0, 0.2))
    assert bounds(0.7 * one.total_variance - other.total_variance)[0] > 0.0
    assert bounds(other.mean - 0.2 * other.total_variance - one.mean + 0.2 * one.total_variance)[0] > 0.0
    assert bounds(other.mean - 0.5 * one.mean)[0] > 0.0
    assert bounds(one.mean)[0] > 0.9 * evaluate(shop.mdp, optimal_policy(shop.mdp, 1.0), 1.0).mean


@pytest.mark.parametrize(
    ("name", "arguments"), [("inventory", ["--weeks", "1", "--seeds", "2", "--scale", "0.01"]),
                            ("portfolio", ["--seeds", "1", "--scale", "0.005"])],
)  # fmt: skip
def test_they_draw_their_figures(example, tmp_path, capsys, monkeypatch, name, arguments):
    monkeypatch.setattr(example(name), "PRICES", (0.0, 0.05))
    written = example(name).main([*arguments, "--out", str(tmp_path)])
    assert {path.name for path in written} == {
        f"{name}-{what}.{kind}" for what in ("frontier", "behaviour") for kind in ("png", "csv")
    }
    assert all(path.stat().st_size > 100 for path in written)
    assert "keeps" in capsys.readouterr().out


def test_one_policy_is_compared_with_one_for_each_price(example, tmp_path, capsys, monkeypatch):
    pytest.importorskip("jax")
    example("portfolio")
    module = example("one_policy")
    monkeypatch.setattr(module, "PRICES", (0.0, 0.1))
    monkeypatch.setitem(module.SETTINGS, "hidden", (8,))
    written = module.main(["--seeds", "1", "--scale", "0.01", "--out", str(tmp_path)])
    assert {path.name for path in written} == {"one-policy.png", "one-policy.csv"}
    assert capsys.readouterr().out.count("mean") == 4
    assert "conditioned" in (tmp_path / "one-policy.csv").read_text()


def test_the_penalty_in_one_file_runs_and_reads_as_ppo_without_it(example):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = example("cleanrl_vpac_ppo")
    short = {"total_timesteps": 512, "num_envs": 2, "num_steps": 64, "update_epochs": 1}
    for env in ("CartPole-v1", "Pendulum-v1"):
        agent, scores = module.train(module.Args(env_id=env, psi=0.01, **short))
        assert all(torch.isfinite(p).all() for p in agent.parameters())
        assert len(scores) > 0
    path = FOLDER / "cleanrl_vpac_ppo.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert 200 < len(lines) < 270
    assert 12 < sum("# VPAC" in line for line in lines) < 25


def test_the_estimators_of_the_one_file_are_those_of_vpac_deep(example):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    jnp = pytest.importorskip("jax.numpy")
    from vpac.deep import estimators
    from vpac.deep.estimators import EpisodeTrace

    module, rng = example("cleanrl_vpac_ppo"), np.random.default_rng(0)
    delta, value = rng.normal(size=(2, 30, 3)).astype(np.float32)
    running, valid = (rng.random((30, 3)) > 0.1).astype(np.float32), np.ones((30, 3), np.float32)
    found = module.gae(torch.as_tensor(delta), torch.as_tensor(running), 0.97, 0.9)
    assert np.allclose(found, estimators.advantages(delta, running, valid, 0.97, 0.9), atol=1e-5)
    luck = module.Luck(3, 0.97)
    lucks, discounts = luck.follow(*map(torch.as_tensor, (delta, value, running)))
    rows, _ = estimators.traces(EpisodeTrace.first(3), *map(jnp.asarray, (delta, delta, value, running, valid)), 0.97)
    assert np.allclose(discounts, rows.discount, atol=1e-6)
    assert np.allclose(lucks + np.mean(luck.returns), rows.luck + rows.start_value, atol=1e-4)


def test_a_battery_loses_money_as_often_as_it_should(example):
    """Exact moments, and the limit P(G < 0) ≤ 5 %: broken by trading on every day, held by reserve on wild days."""
    world = example("dependable").Battery()
    bold, calm = np.zeros((61, 2)), np.zeros((61, 2))
    bold[:, 1] = 1.0
    calm[np.arange(61), 1 - np.arange(61) % 2] = 1.0
    moments = [evaluate(world.mdp, policy, 1.0) for policy in (bold, calm)]
    kinds = np.array([0.6, 0.4])
    for found, means, variances in zip(
        moments, ([14.0, 20.0], [14.0, 10.0]), ([100.0, 4900.0], [100.0, 0.0]), strict=True
    ):
        mean = kinds @ means
        assert found.mean == pytest.approx(30 * mean - 250.0)
        assert found.total_variance == pytest.approx(30 * (kinds @ variances + kinds @ (np.array(means) - mean) ** 2))
    limit = [Limit("max-ruin", 0.05, 0.0)]
    verdicts = [
        certify(lambda state, policy=policy: int(np.argmax(policy[state])), "dependable:Battery", 300, gamma=1.0, limits=limit,
                sources=0).data["limits"][0]["verdict"]
        for policy in (bold, calm)
    ]  # fmt: skip
    assert verdicts == ["does not hold", "holds"]


@pytest.mark.parametrize("story", ["warehouse", "battery"])
def test_stories_end_with_a_certificate(example, story, tmp_path, capsys):
    example("inventory")
    (folder,) = example("dependable").main([story, "--scale", "0.01", "--out", str(tmp_path)])
    found = PolicyCertificate.load(folder / "certificate.json")
    assert (folder / "certificate.html").is_file()
    assert found.data["stress"]["arms"]
    assert found.data["baseline"]["name"] == "bold"
    assert "$ vpac certify" in capsys.readouterr().out


@pytest.mark.slow  # compiles and trains three stages in MuJoCo
def test_a_robot_is_certified(example, tmp_path):
    pytest.importorskip("jax")
    pytest.importorskip("mujoco")
    (folder,) = example("dependable").main(["robot", "--scale", "0.01", "--out", str(tmp_path)])
    found = PolicyCertificate.load(folder / "certificate.json")
    assert set(found.sample.returns) <= {0.0, -1.0}
    assert found.data["limits"][0]["words"] == "P(G < 0) is at most 2 %"
