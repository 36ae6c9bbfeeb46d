from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from vpac.cli import VERBS, main
from vpac.cli.help import SHELLS, completion
from vpac.errors import UserError

ASK = """
source {script}
COMP_WORDS=({words})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_vpac
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

LINES = [
    ("vpac tr", {"train"}),
    ("vpac re", {"reproduce", "report"}),
    ("vpac --v", {"--version"}),
    ("vpac --print-completion f", {"fish"}),
    ("vpac train vpac", {"vpac", "vpac-ppo"}),
    ("vpac train vpac vpac/F", {"vpac/FourRooms-v0"}),
    ("vpac train vpac-ppo --psi 0.1 Taxi", {"Taxi-v4"}),
    ("vpac train vpac X --form c", {"corrected"}),
    ("vpac train vpac X --alpha", {"--alpha-theta", "--alpha-w", "--alpha-z"}),
    ("vpac solve vpac/Cat", {"vpac/CatchUp-v0"}),
    ("vpac solve X --policy g", {"greedy"}),
    ("vpac frontier X --algorithm mvpi", {"mvpi", "mvpi-ppo"}),
    ("vpac reproduce mujoco/hopper-t", {"mujoco/hopper-today"}),
    ("vpac list alg", {"algorithms"}),
    ("vpac train vpac X --out re", set()),
    ("vpac sweep exam", set()),
]


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "vpac.bash"
    path.write_text(completion("bash", VERBS), encoding="utf-8")
    return path


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_verb_and_option(capsys, shell):
    assert main(["--print-completion", shell]) == 0
    out = capsys.readouterr().out
    for verb in VERBS:
        assert verb in out
    for flag in ("json", "psi", "variance-of", "risk-aversion", "store", "print-completion"):
        assert flag in out
    for name in ("off-policy-vaac-td", "vpac/FourRooms-v0", "four-rooms/performance", "corrected published"):
        assert name in out
    if shell == "fish":
        commands = [shlex.split(line) for line in out.splitlines() if not line.startswith("#")]
        assert all(command[:3] == ["complete", "-c", "vpac"] for command in commands)
    else:
        subprocess.run(["bash", "-n"], input=out, text=True, check=True)


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_bash_completes(script, line, expected):
    command = ASK.format(script=script, words=line)
    done = subprocess.run(["bash", "--norc", "-c", command], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes(tmp_path):
    (tmp_path / "vpac.fish").write_text(completion("fish", VERBS), encoding="utf-8")
    for line, expected in LINES:
        if expected:  # else fish completes names of files
            command = f"source {tmp_path / 'vpac.fish'}; complete -C {shlex.quote(line)}"
            done = subprocess.run(
                ["fish", "--no-config", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path
            )
            found = {answer.partition("\t")[0] for answer in done.stdout.splitlines()}
            assert found - {"vpac.fish"} == expected, line


def test_an_unknown_shell_is_named(capsys):
    with pytest.raises(UserError, match="did you mean 'fish'"):
        completion("fihs", VERBS)
    assert main(["--print-completion"]) == 2
    assert "vpac --print-completion bash|zsh|fish" in capsys.readouterr().err
