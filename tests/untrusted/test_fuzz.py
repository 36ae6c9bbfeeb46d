"""Ten thousand broken inputs, always the same: only `UserError` comes out of a parser, 0 or 2 of the command line."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from untrusted.targets import FILES, SEEDS, TEXTS, Readers, read_text
from vpac.cli import main

CASES = {"bytes": 390, "data": 390, "text": 400, "words": 300}
"""Of each reader."""
QUIET = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
]


def cases(kind):
    return settings(
        max_examples=CASES[kind], deadline=None, derandomize=True, database=None, suppress_health_check=QUIET
    )


def edits(size: int):
    """Some places, and what to put there instead of how many bytes."""
    return st.lists(st.tuples(st.integers(0, size), st.integers(0, 12), st.binary(max_size=6)), min_size=1, max_size=4)


def edited(content: bytes, changes) -> bytes:
    for place, cut, new in changes:
        content = content[:place] + new + content[place + cut :]
    return content


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([2**64, -1, "os:system", "../x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(data, path=()):
    """Where something stands in nested data."""
    yield path
    for key, value in data.items() if isinstance(data, dict) else ():
        yield from places(value, (*path, key))


def changed(data, path, value):
    if not path:
        return value
    return data | {path[0]: changed(data[path[0]], path[1:], value)}


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    return Readers(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("name", FILES)
def test_files_with_changed_bytes(readers, name):
    @cases("bytes")
    @given(edits(len(readers.good[name])))
    def read(changes):
        readers.read(name, edited(readers.good[name], changes))

    before = sorted(readers.folder.parent.iterdir())
    read()
    assert sorted(readers.folder.parent.iterdir()) == before


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_files_with_changed_data_and_good_checksums(readers, name):
    good = json.loads(readers.good[name])

    @cases("data")
    @given(st.sampled_from(list(places(good))), values)
    def read(path, value):
        readers.forge(name, changed(good, path, value))

    read()


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    @cases("text")
    @given(
        st.text(max_size=60)
        | edits(len(SEEDS[name])).map(lambda c: edited(SEEDS[name].encode(), c).decode(errors="replace"))
    )
    def read(text):
        read_text(name, text)

    read()


WORDS = (
    "list", "check", "solve", "train", "evaluate", "runs", "report", "doctor", "sweep", "--json", "--store",
    "--out", "--set", "--env", "--policy", "--gamma", "--psi", "--wrap", "--option", "--where", "--limit",
    "--status", "--algorithm", "--seed", "--horizon", "--levels", "--threads", "--jobs", "--scale",
    "--time-limit", "--executor", "--help", "--nonsense", "-", "--", "=", "a=b", "slip=0.1", "x=[",
    "vpac/CatchUp-v0", "vpac/FourRooms-v0", "FrozenLake-v1", "ac", "vpac", "nope:Nope", "0", "-1", "1", "0.5",
    "nan", "inf", "1e309", "99999999999999999999", "greedy", "uniform", "warm-up:1:2", "RewardNoise", "std=2",
    "é", "\u202e", "<script>", "%s", "{}", "$(id)", "serial", "processes", "study.toml", "nothing.npy", "all",
    "experiments",
)  # fmt: skip


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """What would be run is only planned, and training is short."""
    from vpac.cli import studies
    from vpac.execution import training

    def short(kind, env, episodes, runs, seed, **more):
        return train(kind, env, min(episodes, 2), min(runs, 1), seed, **more)

    train = training.train
    monkeypatch.setattr(training, "train", short)
    monkeypatch.setattr(studies, "carry_out", lambda plans, verb, again: 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SEEDS["a study"])
    return tmp_path


def run(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as end:  # the parser's
        return end.code if isinstance(end.code, int) else 2


def test_the_command_line(quick, capsys):
    outside = sorted(os.listdir(quick.parent))

    @cases("words")
    @given(
        st.sampled_from(WORDS[:9]) | st.text(max_size=5),
        st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=5),
    )
    def speak(verb, words):
        words = [word for word in words if not word.startswith(("/", ".", "~")) and "\0" not in word]
        code = run([verb, *words])
        said = capsys.readouterr()
        assert code in ((0, 1, 2) if verb == "doctor" else (0, 2)), (verb, words, code)
        assert "Traceback" not in said.err + said.out
        assert code == 0 or said.err.strip() or said.out.strip(), (verb, words)

    speak()
    assert sorted(os.listdir(quick.parent)) == outside


def test_there_are_ten_thousand_cases():
    forged = sum(name.endswith(".json") for name in FILES)
    total = len(FILES) * CASES["bytes"] + forged * CASES["data"] + len(TEXTS) * CASES["text"] + CASES["words"]
    assert total >= 10_000
