from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from html import unescape

import numpy as np
import pytest

import vpac
from cli.test_cli import run
from vpac.cli.certify import split_values
from vpac.evaluation.play import play
from vpac.evaluation.sources import Walker
from vpac.files import sealed
from vpac.risk import PolicyCertificate, ReturnSample

FEW = ("--episodes", 40, "--sources", 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    for name, psi in (("calm", 1.0), ("bold", 0.0)):
        vpac.VPAC("vpac/CatchUp-v0", gamma=0.95, psi=psi, seed=1).learn(60).save(folder / name / "run-0")
    return folder


def test_the_commands_of_a_certificate_do_what_they_say(capsys, trained, tmp_path):
    """Pasted as they are: the same return, and a film of the same episode."""
    out = tmp_path / "certificate of a policy"
    code, text, _ = run(
        capsys, "certify", trained / "calm", *FEW, "--set", "lucky=5", "--out", out, "--max-ruin", "0.5:0"
    )
    assert code == 0
    for words in ("holds", "worst episodes", "Clopper–Pearson", "certificate.html"):
        assert words in text
    found = PolicyCertificate.load(out / "certificate.json").data
    page = unescape((out / "certificate.html").read_text(encoding="utf-8"))
    for one in found["worst"][:2]:
        commands = one["commands"]
        assert set(commands) == {"replay", "film"}
        assert all(command in page for command in commands.values())
        vpac_, *words = shlex.split(commands["replay"])
        code, text, _ = run(capsys, *words, "--json")
        assert (vpac_, code) == ("vpac", 0)
        (policy,) = json.loads(text)["policies"].values()
        assert policy["discounted"]["mean"]["estimate"] == one["return"]
        code, text, _ = run(capsys, *shlex.split(commands["film"])[1:], "--json")
        assert code == 0
        (episode,) = json.loads(text)["episodes"]
        assert (episode["score"], episode["steps"]) == (pytest.approx(one["undiscounted"]), one["length"])
        assert (out / f"episode-{one['seed']}.gif").is_file()


def test_versions_are_those_of_the_family(capsys, trained, tmp_path):
    """The certificate of a policy of the PPO family names JAX, that of a tabular one does not."""
    jax = pytest.importorskip("jax")
    vpac.VPACPPO("CartPole-v1", psi=0.1, envs=2, steps=8, minibatch=16, hidden=[4], epochs=1).learn(32).save(
        tmp_path / "ppo"
    )
    for folder, expected in ((tmp_path / "ppo", jax.__version__), (trained / "calm", None)):
        assert run(capsys, "certify", folder, "--episodes", 10, "--sources", 0, "--out", tmp_path / "out")[0] == 0
        about = PolicyCertificate.load(tmp_path / "out" / "certificate.json").data["about"]
        assert about["versions"].get("jax") == expected
        assert ("jaxlib" in about["versions"]) == (expected is not None)
        assert about["versions"]["numpy"] == np.__version__


def test_a_training_records_the_versions_of_its_family(capsys, tmp_path):
    jax = pytest.importorskip("jax")
    short = ("--psi", 0.1, "--steps", 32, "--envs", 2, "--option", "steps=8", "minibatch=16", "epochs=1", "hidden=[4]")
    for place, expected, words in (
        ("ppo", jax.__version__, ("vpac-ppo", "CartPole-v1", *short)),
        ("ac/run-0", None, ("ac", "vpac/CatchUp-v0", "--episodes", 3)),
    ):
        assert run(capsys, "train", *words, "--out", tmp_path / place.partition("/")[0], "--json")[0] == 0
        versions = json.loads((tmp_path / place / "run.json").read_text(encoding="utf-8"))["about"]["versions"]
        assert versions.get("jax") == expected
        assert ("jaxlib" in versions) == (expected is not None)
        assert {"numpy", "gymnasium", "python", "vpac"} <= set(versions)


def test_limits_baseline_and_stress_are_taken_in(capsys, trained, tmp_path):
    stressed = tmp_path / "stress"
    code, text, _ = run(
        capsys, "stress", trained / "calm", "--set", "lucky=2,3", "--drop", "0.3", "--episodes", 20, "--out", stressed,
        "--undiscounted",
    )  # fmt: skip
    assert code == 0
    assert "what hurts most" in text
    assert {"stress.json", "stress.png", "heat-map.png", "episodes"} <= {path.name for path in stressed.iterdir()}
    code, text, _ = run(
        capsys, "certify", trained / "calm", *FEW, "--baseline", trained / "bold", "--keep-mean", 0.1, "--min-mean", 1e6,
        "--stress", stressed / "stress.json", "--out", tmp_path / "out", "--json", "--undiscounted",
    )  # fmt: skip
    found = json.loads(text)
    assert code == 3  # a limit does not hold; everything is written all the same
    assert {one["limit"]["kind"]: one["verdict"] for one in found["limits"]}["min-mean"] == "does not hold"
    assert found["holds"] is False
    assert found["baseline"]["name"] == "bold"
    assert found["measurement"]["kind"] == "undiscounted"
    assert len(found["stress"]["arms"]) == 1 + 2 + 1 + 2
    assert found["policy"]["files"]["agent.json"]["sha256"]
    assert "Both together" in (tmp_path / "out" / "certificate.html").read_text(encoding="utf-8")
    code, _, err = run(capsys, "certify", trained / "bold", *FEW, "--stress", stressed / "stress.json")
    assert code == 2
    assert "another policy" in err


def test_what_was_measured_is_not_measured_again(capsys, trained, tmp_path, monkeypatch):
    command = ("certify", trained / "calm", *FEW, "--out", tmp_path, "--json")
    first = json.loads(run(capsys, *command)[1])
    kept = tmp_path / "episodes" / "policy.parquet"
    sample = ReturnSample.load(kept)
    before = kept.stat().st_mtime_ns
    again = json.loads(run(capsys, *command)[1])
    assert kept.stat().st_mtime_ns == before
    assert again["metrics"] == first["metrics"]
    run(capsys, *command, "--seed", 1)
    assert ReturnSample.load(kept).returns.tolist() != sample.returns.tolist()
    kept.write_bytes(b"damaged")
    code, _, err = run(capsys, *command)
    assert code == 0
    assert "measured again" in err
    assert ReturnSample.load(kept).returns.tolist() == sample.returns.tolist()


def test_a_stopped_certificate_goes_on_where_it_was(capsys, trained, tmp_path, monkeypatch):
    """Episodes that were played are not played again, also those of a smaller number, and the sample is the same one."""
    command = ("certify", trained / "calm", "--baseline", trained / "bold", "--sources", 0, "--json")
    assert run(capsys, *command, "--episodes", 40, "--out", tmp_path / "straight")[0] == 0
    played = []

    def stops_in_the_55th(*how, **options):
        played.append(how)
        if len(played) == 55:
            raise KeyboardInterrupt
        return play(*how, **options)

    stopped = (*command, "--out", tmp_path / "stopped")
    assert run(capsys, *stopped, "--episodes", 10)[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr("vpac.evaluation.play.play", stops_in_the_55th)
        code, _, err = run(capsys, *stopped, "--episodes", 40)  # 30 more of the policy, 24 of the baseline
        assert code == 130
        assert "74 episodes are kept in" in err
        code = run(capsys, *stopped, "--episodes", 40)[0]
    assert (code, len(played)) == (0, 55 + 6 + 5)  # the five worst are played again
    both = [PolicyCertificate.load(tmp_path / name / "certificate.json").data for name in ("stopped", "straight")]
    assert all(both[0][part] == both[1][part] for part in ("episodes", "baseline", "metrics"))


def test_a_stopped_certificate_keeps_the_starts_of_its_sources(capsys, trained, tmp_path, monkeypatch):
    """Starts that were played are not played again, also those of a smaller number, and the result is the same one."""
    command = ("certify", trained / "calm", "--episodes", 10, "--json")
    assert run(capsys, *command, "--sources", 30, "--out", tmp_path / "straight")[0] == 0
    played, kept = [], tmp_path / "stopped" / "episodes" / "sources.parquet"

    def stops_in_the_24th(*how, **options):
        played.append(how)
        if len(played) == 24:  # the second of two episodes of the twelfth start
            raise KeyboardInterrupt
        return episode(*how, **options)

    episode = Walker.episode
    stopped = (*command, "--out", tmp_path / "stopped")
    with monkeypatch.context() as patched:
        patched.setattr("vpac.evaluation.sources.Walker.episode", stops_in_the_24th)
        patched.setattr("vpac.evaluation.play.KEEP_EVERY", 0.0)
        code, _, err = run(capsys, *stopped, "--sources", 20)
        assert code == 130
        assert "10 episodes and 11 starts are kept in" in err
        assert run(capsys, *stopped, "--sources", 20)[0] == 0
        assert len(played) == 24 + 2 * 9
        assert run(capsys, *stopped, "--sources", 30)[0] == 0
        assert len(played) == 24 + 2 * 9 + 2 * 10
        before = kept.read_bytes()
        assert run(capsys, *stopped, "--sources", 30)[0] == 0
        assert (len(played), kept.read_bytes()) == (24 + 2 * 9 + 2 * 10, before)
        both = [PolicyCertificate.load(tmp_path / name / "certificate.json").data for name in ("stopped", "straight")]
        assert both[0]["sources"] == both[1]["sources"]
        assert run(capsys, *stopped, "--sources", 12, "--undiscounted")[0] == 0  # another discount: all again
        assert len(played) == 24 + 2 * 9 + 2 * 10 + 2 * 12


KILLED = """
import os, signal, sys
from vpac import cli
from vpac.evaluation import play, sources

log, last = sys.argv[1], int(sys.argv[2])
play.KEEP_EVERY = 0.0
episode = sources.Walker.episode


def counted(*how):
    with open(log, "ab") as file:
        file.write(b".")
    if os.stat(log).st_size == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return episode(*how)


sources.Walker.episode = counted
sys.exit(cli.main(sys.argv[3:]))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_a_killed_certificate_keeps_the_starts_of_its_sources(capsys, trained, tmp_path, monkeypatch):
    words = ["certify", trained / "calm", "--episodes", "10", "--sources", "20", "--out", tmp_path / "out", "--json"]
    log, played, episode = tmp_path / "log", [], Walker.episode
    done = subprocess.run([sys.executable, "-c", KILLED, log, "24", *words], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == -signal.SIGKILL  # in the second of two episodes of the twelfth start
    assert log.stat().st_size == 24
    monkeypatch.setattr(Walker, "episode", lambda *how: played.append(how) or episode(*how))
    assert run(capsys, *words)[0] == 0
    assert len(played) == 2 * 9


def test_a_stopped_stress_test_says_what_it_kept(capsys, trained, tmp_path, monkeypatch):
    command = ("stress", trained / "calm", "--drop", "0.1,0.3", "--episodes", 20)
    _, straight, _ = run(capsys, *command, "--out", tmp_path / "straight", "--json")
    played = []

    def stops_in_the_last(*how, **options):
        played.append(how)
        if len(played) == 48:
            raise KeyboardInterrupt
        return play(*how, **options)

    monkeypatch.setattr("vpac.evaluation.play.play", stops_in_the_last)
    code, _, err = run(capsys, *command, "--out", tmp_path / "stopped", "--json")
    assert code == 130
    assert "47 episodes are kept in" in err
    code, again, _ = run(capsys, *command, "--out", tmp_path / "stopped", "--json")
    assert (code, len(played)) == (0, 48 + 13)
    assert json.loads(again)["arms"] == json.loads(straight)["arms"]


def test_a_random_baseline_and_the_most_preferred_actions(capsys, trained, tmp_path):
    command = (
        "certify",
        trained / "calm",
        *FEW,
        "--baseline",
        "random",
        "--deterministic",
        "--out",
        tmp_path,
        "--json",
    )
    found = json.loads(run(capsys, *command)[1])
    assert found["baseline"]["name"] == "random actions"
    assert "--deterministic" in found["worst"][0]["commands"]["replay"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("certify", "RUN", "--max-ruin", "1.5:0"), "must be above 0 and at most 1"),
        (("certify", "RUN", "--max-ruin", "0.05"), "expected PROBABILITY:RETURN"),
        (("certify", "RUN", "--max-std", "1", "--max-std", "2"), "--max-std is given 2 times"),
        (
            ("certify", "RUN", "--max-std", "5", "--max-variance", "100"),
            "a budget is max_variance or max_std: give one of them",
        ),
        (("certify", "RUN", "--keep-mean", "0.95"), "--baseline RUN"),
        (("certify", "RUN", "--episodes", "3"), "from 10 up"),
        (("certify", "RUN", "--level", "1"), "--level"),
        (("certify", "RUN", "--levels", "2"), "--levels"),
        (("certify", "RUN", "--stress", "nothing.json"), "cannot read nothing.json"),
        (("certify", "missing"), "there is no agent"),
        (("stress", "RUN"), "nothing to change"),
        (("stress", "RUN", "--noise", "much"), "numbers that are not negative"),
        (("stress", "RUN", "--delay", "1.5"), "whole numbers"),
        (("stress", "RUN", "--drop", "1.5"), "probability"),
        (("stress", "RUN", "--set", "lucky"), "KEY=VALUE,VALUE"),
        (("stress", "RUN", "--set", "lukcy=1,2"), "did you mean 'lucky'"),
        (("stress", "RUN", "--set", "nothere=1"), "; it has length, lucky, "),
    ],
    ids=" ".join,
)
def test_nonsense_is_named(capsys, trained, tmp_path, words, message):
    given = [str(trained / "calm") if word == "RUN" else word for word in words]
    code, _, err = run(capsys, *given, "--out", tmp_path)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_changed_stress_test_is_refused(capsys, trained, tmp_path):
    run(capsys, "stress", trained / "calm", "--delay", "1", "--episodes", 10, "--out", tmp_path)
    path = tmp_path / "stress.json"
    path.write_text(path.read_text().replace('"delay": 1', '"delay": 2'))
    code, _, err = run(capsys, "certify", trained / "calm", *FEW, "--stress", path, "--out", tmp_path)
    assert (code, "checksum differs" in err) == (2, True)
    path.write_text(sealed({"format": 1}))
    assert run(capsys, "certify", trained / "calm", *FEW, "--stress", path, "--out", tmp_path)[0] == 2


def test_a_stress_test_that_was_measured_otherwise_is_refused(capsys, trained, tmp_path):
    path, played = tmp_path / "stress.json", ("--drop", "0.1", "--episodes", 10, "--out", tmp_path)
    how = ("--deterministic", "--undiscounted", "--gamma", "0.9")
    code, text, _ = run(capsys, "stress", trained / "calm", *played, *how)
    (command,) = (line for line in text.splitlines() if line.startswith("next: vpac "))
    words = shlex.split(command.removeprefix("next: vpac "))
    assert (code, words[-4:]) == (0, list(how))
    assert run(capsys, *words, *FEW, "--out", tmp_path / "out")[0] == 0  # the command as it is printed
    for given, said in (
        (how[1:], "deterministic = True, this certificate is with False"),
        ((*how[:1], *how[2:]), "undiscounted = True, this certificate is with False"),
        (how[:2], "gamma = 0.9, this certificate is with 0.95"),
    ):
        code, _, err = run(
            capsys, "certify", trained / "calm", *FEW, "--stress", path, "--out", tmp_path / "no", *given
        )
        assert (code, said in err) == (2, True), err
        assert not list((tmp_path / "no").iterdir())
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["measurement"]["undiscounted"], data["checksum"]  # as older versions wrote it
    path.write_text(sealed(data), encoding="utf-8")
    assert run(capsys, "certify", trained / "calm", *FEW, "--stress", path, "--out", tmp_path / "out", *how)[0] == 0


def test_several_policies_need_a_name(capsys, trained, tmp_path):
    vpac.AC("vpac/CatchUp-v0", seed=2).learn(5).save(tmp_path / "run-1")
    vpac.AC("vpac/CatchUp-v0", seed=3).learn(5).save(tmp_path / "run-0")
    code, _, err = run(capsys, "certify", tmp_path)
    assert code == 2
    assert "run-0" in err


def test_values_with_commas_of_their_own():
    assert split_values('4,5,[1,2],"a,b"') == ["4", "5", "[1,2]", '"a,b"']


def test_a_stress_test_of_noise_is_paired(capsys, trained, tmp_path):
    code, text, _ = run(
        capsys, "stress", trained / "calm", "--noise", "0.2", "--action-noise", "0.2", "--first-steps", "2", "--episodes", 30,
        "--out", tmp_path, "--json",
    )  # fmt: skip
    assert code == 0
    arms = json.loads(text)["arms"]
    assert arms[0]["change"] == {}
    assert arms[0]["against_control"] is None
    means = [arm["mean"]["estimate"] for arm in arms[1:]]
    assert means == sorted(means)
    assert len(arms) == 4
    assert all(np.isfinite(arm["against_control"]["correlation"]) for arm in arms[1:])


def test_a_limit_that_does_not_hold_stops_a_pipeline_whose_reader_has_gone(tmp_path, monkeypatch, trained):
    """`vpac certify … | true` exits with 3, not with 0."""
    monkeypatch.chdir(tmp_path)
    words = [
        sys.executable,
        "-m",
        "vpac",
        "certify",
        str(trained / "calm"),
        "--episodes",
        "20",
        "--sources",
        "0",
        "--min-mean",
        "1000",
    ]
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shlex.join(words)} | true"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (3, 0), done.stderr
