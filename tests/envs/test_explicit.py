"""Models of other tools, written here from their published definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from vpac import FiniteMDP, oracle
from vpac.errors import UserError

COINS = {0: (1, 2), 1: (3, 4), 2: (5, 6), 3: (1, 7), 4: (8, 9), 5: (10, 11), 6: (2, 12)}
"""Knuth and Yao (1976): a die from a fair coin. States 7 … 12 are the faces."""


def die_tra(first_line):
    rows = [f"{s} {to} 0.5" for s, both in COINS.items() for to in both]
    return "\n".join([first_line, *rows, *(f"{s} {s} 1" for s in range(7, 13))]) + "\n"


def write(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def moments(mdp):
    found = oracle.evaluate(mdp, oracle.uniform(mdp), 1.0)
    return float(found.mean), float(found.total_variance)


def test_the_die_takes_eleven_thirds_flips_in_every_format(tmp_path):
    flips = "\n".join(f"{s} 1" for s in COINS)
    storm_labels = "#DECLARATION\ninit done\n#END\n0 init\n" + "\n".join(f"{s} done" for s in range(7, 13))
    prism_labels = '0="init" 1="deadlock" 2="done"\n0: 0\n' + "\n".join(f"{s}: 2" for s in range(7, 13))
    by_transition = "\n".join(f"{s} {to} 1" for s, both in COINS.items() for to in both)
    drn = ["// a comment", "@type: DTMC", "@parameters", "", "@reward_models", "coin_flips", "@nr_states", "13"]
    drn += ["@nr_choices", "13", "@model"]
    for s in range(13):
        both = COINS.get(s)
        drn += [f"state {s} [{1 if both else 0}] {'init' if s == 0 else '' if both else 'done'}", "\taction 0 [0]"]
        drn += [f"\t\t{to} : 1/2" for to in both] if both else [f"\t\t{s} : 1"]
    write(tmp_path, s_tra=die_tra("dtmc"), s_rew=flips, s_lab=storm_labels, p_tra=die_tra("13 20"), m_drn="\n".join(drn),
          p_srew=f"# a comment\n13 7\n{flips}", p_trew=f"13 14\n{by_transition}", p_lab=prism_labels)  # fmt: skip
    models = [
        FiniteMDP.from_prism(tmp_path / "s.tra", state_rewards=tmp_path / "s.rew"),
        FiniteMDP.from_prism(
            tmp_path / "s.tra", state_rewards=tmp_path / "s.rew", labels=tmp_path / "s.lab", terminal="done"
        ),
        FiniteMDP.from_prism(tmp_path / "p.tra", state_rewards=tmp_path / "p.srew", labels=tmp_path / "p.lab"),
        FiniteMDP.from_prism(tmp_path / "p.tra", transition_rewards=str(tmp_path / "p.trew")),
        FiniteMDP.from_drn(tmp_path / "m.drn"),
        FiniteMDP.from_drn(tmp_path / "m.drn", reward="coin_flips", terminal="done"),
    ]
    for mdp in models:
        assert (mdp.n_states, mdp.n_actions, int(mdp.terminal.sum())) == (13, 1, 6)
        # 3 flips, and two more with probability 1/4 again and again: 3 + 2 · 1/3, variance 4 · (1/4) / (3/4)².
        assert moments(mdp) == pytest.approx((11 / 3, 16 / 9), abs=1e-12)
        assert oracle.evaluate(mdp, oracle.uniform(mdp), 1.0).visits[7:] == pytest.approx(np.full(6, 1 / 6))
        found = oracle.distribution(mdp, oracle.uniform(mdp), 1.0)
        assert found.error == 0.0
        assert found.below(5.0) == pytest.approx(0.75)


MDP_TRA = "mdp\n0 0 1 0.5\n0 0 2 0.5\n0 1 2 1\n1 0 2 1\n2 0 2 1\n"


def test_a_choice_that_a_state_lacks_repeats_its_last_one(tmp_path):
    write(tmp_path, m_tra=MDP_TRA, m_rew="0 0 1 4\n1 0 2 3\n0 1 2 2\n")
    mdp = FiniteMDP.from_prism(tmp_path / "m.tra", transition_rewards=tmp_path / "m.rew")
    assert mdp.transition[1].tolist() == [[0, 0, 1], [0, 0, 1]]
    assert mdp.reward_mean[1, :, 2].tolist() == [3.0, 3.0]
    assert mdp.start.tolist() == [1.0, 0.0, 0.0]
    assert moments(FiniteMDP.from_prism(tmp_path / "m.tra"))[0] == 0.0
    assert float(oracle.evaluate(mdp, oracle.optimal_policy(mdp, 1.0), 1.0).mean) == pytest.approx(3.5)
    write(tmp_path, p_tra="3 4 5\n" + "".join(f"{line} go\n" for line in MDP_TRA.splitlines()[1:]))
    assert FiniteMDP.from_prism(tmp_path / "p.tra").action_names == ("go", "go")


@pytest.mark.parametrize(
    ("files", "line", "message"),
    [
        ({"m_tra": "ctmc\n0 1 1\n"}, 1, "expected 'dtmc', 'mdp' or the numbers"),
        ({"m_tra": ""}, 1, "expected 'dtmc'"),
        ({"m_tra": "dtmc\n0 1\n"}, 2, "expected 'state successor probability'"),
        ({"m_tra": "mdp\n0 0 1\n"}, 2, "expected 'state choice successor probability'"),
        ({"m_tra": "dtmc\n0 x 1\n"}, 2, "expected a successor"),
        ({"m_tra": "2 1\n0 2 1\n"}, 2, "a whole number below 2, got '2'"),
        ({"m_tra": "dtmc\n0 1 1.5\n"}, 2, "expected a probability from 0 to 1"),
        ({"m_tra": "dtmc\n0 1 p\n"}, 2, "expected a probability, a number, got 'p'"),
        ({"m_tra": "dtmc\n0 1 0.5\n0 1 0.5\n"}, 3, "was given before"),
        ({"m_tra": "dtmc\n0 1 0.5\n0 0 0.4\n1 1 1\n"}, 3, "state 0, choice 0 sum to 0.9"),
        ({"m_tra": MDP_TRA, "m_rew": "0 0 0 1\n"}, 1, "which is no transition"),
        ({"m_tra": MDP_TRA, "m_srew": "0 1 2\n"}, 1, "expected 'state reward'"),
        ({"m_tra": MDP_TRA, "m_srew": "0 nan\n"}, 1, "expected a reward, a number"),
        ({"m_tra": MDP_TRA, "m_lab": "#DECLARATION\ninit\n#END\n0 start\n"}, 4, "'start' is not declared"),
        ({"m_tra": MDP_TRA, "m_lab": '0="init"\n7: 0\n'}, 2, "a whole number below 3"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, files, line, message):
    write(tmp_path, **files)
    given = {"m_rew": "transition_rewards", "m_srew": "state_rewards", "m_lab": "labels"}
    options = {given[name]: tmp_path / name.replace("_", ".") for name in files if name in given}
    with pytest.raises(UserError, match=message) as caught:
        FiniteMDP.from_prism(tmp_path / "m.tra", **options)
    assert f"line {line}:" in str(caught.value)


HEAD = "@type: MDP\n@parameters\n\n@reward_models\na b\n@nr_states\n2\n@model\n"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("@type: CTMC\n@nr_states\n1\n@model\n", {}, "line 4: expected '@type: DTMC' or '@type: MDP'"),
        ("@type: MDP\n@parameters\np q\n@nr_states\n1\n@model\n", {}, "line 6: the model has parameters"),
        ("@type: MDP\n@model\n", {}, "line 2: expected a number of states"),
        (HEAD, {}, "several reward models: choose one of a, b"),
        (HEAD, {"reward": "aa"}, "no reward model 'aa'"),
        (HEAD, {"reward": "a"}, "holds no transitions"),
        (HEAD + "state 2 [0, 0]\n", {"reward": "a"}, "line 9: expected a state, a whole number below 2"),
        (HEAD + "action 0\n", {"reward": "a"}, "line 9: expected 'action NAME"),
        (HEAD + "state 0 [1]\n", {"reward": "b"}, "line 9: expected 2 rewards"),
        (HEAD + "state 0\n0 : 1\n", {"reward": "b"}, "line 10: expected 'successor : probability' within an action"),
        (HEAD + "state 0\naction 0\n1 : [0.1, 0.2]\n", {"reward": "b"}, "line 11: expected a probability, a number"),
        (HEAD + "state 0\naction 0\n1 : 1\n1 : 1\n", {"reward": "b"}, "line 12: state 0, choice 0 leads to 1 twice"),
        (HEAD + "state 0 done\naction 0\n1 : 1\nstate 1\naction 0\n1 : 1\n", {"reward": "a", "terminal": "dome"},
         "no label 'dome'; did you mean 'done'"),
    ],
)  # fmt: skip
def test_bad_drn_files_are_named_with_their_line(tmp_path, text, options, message):
    (tmp_path / "m.drn").write_text(text)
    with pytest.raises(UserError, match=message):
        FiniteMDP.from_drn(tmp_path / "m.drn", **options)


def test_a_file_that_was_cut_is_not_taken_for_a_smaller_model(tmp_path):
    """Of the die: states whose lines are missing would count as terminal."""
    whole = die_tra("13 20").splitlines()
    write(
        tmp_path,
        p_tra="\n".join(whole[:9]),
        s_tra="\n".join(["dtmc", *whole[1:9]]),
        large_tra="99999999999999 1\n0 0 1",
    )
    with pytest.raises(UserError, match="the first line says 20 transitions, there are 8: is it complete"):
        FiniteMDP.from_prism(tmp_path / "p.tra")
    with pytest.raises(UserError, match="state 4 has no transitions and is not terminal"):
        FiniteMDP.from_prism(tmp_path / "s.tra")
    with pytest.raises(UserError, match="1 transitions for 99999999999999 states: is it complete"):
        FiniteMDP.from_prism(tmp_path / "large.tra")
    (tmp_path / "m.drn").write_text(
        HEAD.replace("\n2\n", "\n3\n") + "state 0\naction 0\n0 : 0.5\n1 : 0.5\nstate 1\naction 0\n1 : 1\n"
    )
    with pytest.raises(UserError, match="state 2 has no transitions and is not terminal"):
        FiniteMDP.from_drn(tmp_path / "m.drn", reward="a")


@pytest.mark.parametrize(
    ("transitions", "rewards"), [("x", [0.0]), ([np.eye(1)], None), ([np.eye(1)], "x"), ([np.eye(1)], [1, [2, 3]])]
)
def test_arrays_that_are_none(transitions, rewards):
    with pytest.raises(UserError, match=r"must be arrays of numbers, or lists of matrices|expected transitions"):
        FiniteMDP.from_mdptoolbox(transitions, rewards)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        FiniteMDP.from_drn(tmp_path / "none.drn")
    (tmp_path / "m.drn").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot read"):
        FiniteMDP.from_drn(tmp_path / "m.drn")


def test_the_forest_of_mdptoolbox():
    """Wait or cut; a fire, with probability 0.1, or the axe makes the forest young. The values are MDPtoolbox's own."""
    P = np.array([[[0.1, 0.9, 0], [0.1, 0, 0.9], [0.1, 0, 0.9]], [[1.0, 0, 0]] * 3])
    R = np.array([[0.0, 0.0], [0.0, 1.0], [4.0, 2.0]])
    full = np.broadcast_to(R.T[:, :, None], (2, 3, 3))
    for transitions, rewards in ((P, R), ([csr_array(p) for p in P], R), (P, full), (P, [csr_array(r) for r in full])):
        mdp = FiniteMDP.from_mdptoolbox(transitions, rewards)
        policy = oracle.optimal_policy(mdp, 0.9)
        assert policy.argmax(axis=1).tolist() == [0, 0, 0]
        assert oracle.evaluate(mdp, policy, 0.9).value == pytest.approx([26.244, 29.484, 33.484])
    assert FiniteMDP.from_mdptoolbox(P, [0.0, 1.0, 2.0]).reward_mean[2, 1, 0] == 2.0
    for transitions, rewards, message in (
        (np.moveaxis(P, 0, 2), R, "expected transitions"), (P, R.T, r"expected rewards \[3\], \[3, 2\]"), ([], R, "expected")
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            FiniteMDP.from_mdptoolbox(transitions, rewards)
