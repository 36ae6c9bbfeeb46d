from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from tiny import little
from vpac.errors import UserError
from vpac.lab.experiments.catalogue import EXPERIMENTS, chosen, read_experiment
from vpac.lab.experiments.spec import Arm, Claim, Experiment, Figure, arms_of_grid
from vpac.lab.report.figures import FIGURE_KINDS
from vpac.lab.workers.study import plan

PAPER = (
    "four-rooms/performance", "four-rooms/psi-curves", "four-rooms/qualitative", "four-rooms/start-cells",
    "four-rooms/vaac", "four-rooms/psi-effect", "four-rooms/temperature-effect", "four-rooms/step-sizes",
    "puddle-world/discrete", "puddle-world/continuous",
)  # fmt: skip


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_spec_survives_being_written_and_read(name):
    experiment = EXPERIMENTS[name]
    assert Experiment.model_validate_json(experiment.model_dump_json()) == experiment


def test_every_figure_of_the_paper_is_there_with_its_numbers_of_runs():
    runs = {name: (EXPERIMENTS[name].runs, len(EXPERIMENTS[name].arms)) for name in PAPER}
    assert runs == {
        "four-rooms/performance": (100, 4), "four-rooms/psi-curves": (100, 4), "four-rooms/qualitative": (100, 2),
        "four-rooms/start-cells": (50, 2), "four-rooms/vaac": (100, 2), "four-rooms/psi-effect": (50, 16),
        "four-rooms/temperature-effect": (50, 14), "four-rooms/step-sizes": (50, 54), "puddle-world/discrete": (100, 3),
        "puddle-world/continuous": (50, 4),
    }  # fmt: skip
    assert {f"{name}-corrected" for name in PAPER} < set(EXPERIMENTS)


def test_the_corrected_twin_differs_in_the_form_only():
    ours, theirs = EXPERIMENTS["four-rooms/performance-corrected"], EXPERIMENTS["four-rooms/performance"]
    assert [arm.settings for arm in ours.arms] == [arm.settings for arm in theirs.arms]
    changed = {key for key in ours.settings if ours.settings[key] != theirs.settings.get(key)}
    assert changed == {"form", "baseline", "variance_of"}


@pytest.mark.parametrize(("task", "psi"), [("halfcheetah", 0.15), ("hopper", 0.2), ("walker2d", 0.15)])
def test_todays_prices_are_the_papers_per_unit_of_the_raw_reward(task, psi):
    """The paper's rewards are multiplied by 0.01: 0.15 per unit of those is 0.0015 per unit of the task's own."""

    def prices(name):
        return {arm.label: arm.settings.get("psi", 0.0) for arm in EXPERIMENTS[f"mujoco/{name}"].arms}

    paper = {"PPO": 0.0, "VAAC": 0.15, "VPAC": psi, "VPAC corrected": psi}
    raw = {label: pytest.approx(0.01 * price) for label, price in paper.items()}
    assert prices(task) == paper
    assert prices(f"{task}-today") == raw
    if task == "hopper":
        assert prices("hopper-horizon") == raw


def test_experiments_share_their_runs():
    performance, qualitative = (plan(EXPERIMENTS[f"four-rooms/{name}"]) for name in ("performance", "qualitative"))
    names = {run.name for run in performance.all()}
    assert {run.name for run in qualitative.all()} < names


def test_the_usual_size_is_smaller_only_where_it_says_so():
    continuous = EXPERIMENTS["puddle-world/continuous"]
    assert len(plan(continuous).all()) == 40
    assert len(plan(continuous, full=True).all()) == 200
    assert len(plan(EXPERIMENTS["four-rooms/performance"]).all()) == 400


def test_a_group_is_all_of_its_members_and_searches_are_on_demand():
    assert [e.name for e in chosen(("puddle-world",))] == [n for n in EXPERIMENTS if n.startswith("puddle-world/")]
    assert not any(e.name.startswith("grid-search") for e in chosen(()))
    assert len(chosen(("grid-search",))) == 3
    with pytest.raises(UserError, match="did you mean 'four-rooms/performance'"):
        chosen(("four-rooms/perfomance",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ()}, "at least 1"),
        ({"arms": (Arm(label="x"), Arm(label="x"))}, "two arms"),
        (
            {"claims": [{"text": "t", "where": "w", "quantity": "mean", "arm": "Z", "by": "value", "below": 1}]},
            "no arm 'Z'",
        ),
        ({"runs": 0}, "greater than or equal to 1"),
        (
            {"figures": [{"kind": "curves", "title": "t", "shows": ["meen"]}]},
            "unknown thing to show 'meen'; did you mean 'mean'",
        ),
        (
            {"figures": [{"kind": "effect", "title": "t", "shows": ["mean"], "x": "ps"}]},
            "unknown key of what the arm 'AC'",
        ),
        ({"figures": [{"kind": "effect", "title": "t", "shows": ["mean"]}]}, "an effect needs `x`"),
        (
            {"claims": [{"text": "t", "where": "w", "quantity": "meen", "arm": "AC", "by": "value", "below": 1}]},
            "unknown quantity 'meen'; did you mean 'mean'",
        ),
        ({"name": "../x"}, "pattern"),
        ({"settings": {"psi": float("nan")}}, "finite"),
        ({"rums": 3}, "rums"),
    ],
)
def test_a_bad_spec_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        little(**changes)


def test_a_claim_must_be_decidable():
    common = {"text": "t", "where": "w", "quantity": "mean", "arm": "AC"}
    with pytest.raises(ValidationError, match="below"):
        Claim(**common, by="value")
    with pytest.raises(ValidationError, match="against"):
        Claim(**common, below=1.0)


def test_a_grid_has_an_arm_for_each_combination():
    arms = arms_of_grid({"psi": [0.0, 0.1], "temperature": [1.0, 2.0, 3.0]}, "vpac", "VPAC")
    assert len(arms) == 6
    assert arms[1].label == "VPAC psi=0.0 temperature=2.0"
    assert arms[1].settings == arms[1].at == {"psi": 0.0, "temperature": 2.0}


def test_a_study_is_read_from_toml(tmp_path):
    path = tmp_path / "My study.toml"
    path.write_text('env = "vpac/CatchUp-v0"\nalgorithm = "vpac"\n[grid]\npsi = [0.0, 1.0]\n', encoding="utf-8")
    experiment = read_experiment(path)
    assert experiment.name == "my-study"
    assert [arm.settings for arm in experiment.arms] == [{"psi": 0.0}, {"psi": 1.0}]


def test_the_example_is_right():
    assert len(read_experiment_example().arms) == 6


@pytest.mark.parametrize("where", ["", "[[arms]]\nlabel = 'calm'\n"])
def test_a_study_of_the_ppo_family_needs_no_kind(tmp_path, where):
    path = tmp_path / "deep.toml"
    arms = "" if where else "[[arms]]\nlabel = 'calm'\n"
    path.write_text(f"env = 'CartPole-v1'\n{where}algorithm = 'vpac-ppo'\n{arms}settings = {{psi = 0.1}}\n")
    assert read_experiment(path).kind == "deep"


def read_experiment_example():
    from pathlib import Path

    return read_experiment(Path(__file__).parents[3] / "examples" / "sweep.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsiodes = 3", "unknown field 'epsiodes'; did you mean 'episodes'"),
        ("episodes = 'many'\n[[arms]]\nlabel='a'", "episodes: input should be a valid integer"),
        ("[[arms]]\nlabel = 'a'\nsetings = {}", r"unknown field 'arms.0.setings'; did you mean 'settings'"),
        ("[grid]\npsi = 3", "grid must hold a list"),
        ("[grid]\npsi = [[1], [2]]", "values of a grid"),
        ("[grid]\npsi = [1]\n[[arms]]\nlabel='a'", "either arms or a grid"),
        ("[grid]\n" + "\n".join(f"k{i} = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for i in range(5)), "at most 10,000"),
        ("name = ", "is not TOML"),
        ("title = 'nothing'", "arms: field required"),
        ("\x00", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as found:
        read_experiment(path)
    assert str(path) in str(found.value)


def test_a_missing_or_huge_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*No such file"):
        read_experiment(tmp_path / "none.toml")
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * 2_000_000)
    with pytest.raises(UserError, match="more than 1,000,000"):
        read_experiment(huge)


@pytest.mark.parametrize("changes", [{"runs": 0}, {"scale": 0.0}, {"scale": 1.5}, {"scale": float("nan")}])
def test_a_bad_size_is_refused(changes):
    with pytest.raises(UserError, match="must be"):
        plan(little(), **changes)


def test_every_kind_of_figure_can_be_drawn_and_says_what_it_draws():
    assert set(get_args(Figure.model_fields["kind"].annotation)) == set(FIGURE_KINDS)
    assert all(draw.__doc__ for draw in FIGURE_KINDS.values())
