"""Ten thousand broken inputs, always the same: only `UserError` comes out of a parser, 0 or 2 of the command line."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from untrusted.command_line import VERB_WORDS, WORDS, Sandbox
from untrusted.targets import DEEP, FILES, SEEDS, TEXTS, Readers, read_text
from vpac.sealing import sealed

CASES = {"bytes": 330, "data": 330, "text": 400, "words": 60, "deep": 12, "page": 4}
"""Of each reader."""
QUIET = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
]


def cases(kind):
    return settings(
        max_examples=CASES[kind], deadline=None, derandomize=True, database=None, suppress_health_check=QUIET,
        phases=(Phase.generate, Phase.shrink),  # to explain what was found it would trace every line
    )  # fmt: skip


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

    def outside():
        return {path for path in readers.folder.parent.rglob("*") if not path.is_relative_to(readers.folder / "store")}

    before = outside()
    read()
    assert outside() == before


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


@pytest.mark.parametrize("name", DEEP)
def test_agents_and_checkpoints_of_the_ppo_family(readers, name):
    pytest.importorskip("jax")

    @cases("deep")
    @given(edits(len(readers.good[name])))
    def read(changes):
        readers.read(name, edited(readers.good[name], changes))

    read()
    if not name.endswith(".json"):
        return
    good = json.loads(readers.good[name])

    @cases("deep")
    @given(st.sampled_from(list(places(good))), values)
    def read_forged(path, value):
        readers.forge(name, changed(good, path, value))

    read_forged()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["run/run.json", "store/studies/little.json", "failed.json"])
def test_pages_of_forged_stores(readers, name):
    good = json.loads(readers.good[name])
    good.pop("checksum")

    @cases("page")
    @given(st.sampled_from(list(places(good))[1:]), values)
    def read(path, value):
        with contextlib.suppress(ValueError):  # half a character
            readers.report(name, sealed(changed(good, path, value)).encode())

    read()


@pytest.mark.filterwarnings("ignore")
def test_the_command_line(tmp_path):
    with Sandbox(tmp_path / "sandbox").entered() as sandbox:

        @cases("words")
        @given(
            st.sampled_from(VERB_WORDS) | st.text(max_size=5),
            st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=5),
        )
        def speak(verb, words):
            sandbox.speak(verb, words)

        speak()


def test_a_file_that_no_word_named_would_be_found(tmp_path, monkeypatch):
    with Sandbox(tmp_path / "sandbox").entered() as sandbox:
        monkeypatch.setattr("untrusted.command_line.main", lambda words: (sandbox.home / "x").write_text("") or 0)
        with pytest.raises(AssertionError, match="home/x"):
            sandbox.speak("list", [])


def test_there_are_ten_thousand_cases():
    forged = sum(name.endswith(".json") for name in FILES)
    total = len(FILES) * CASES["bytes"] + forged * CASES["data"] + len(TEXTS) * CASES["text"] + CASES["words"]
    assert total >= 10_000
