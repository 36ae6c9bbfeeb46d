"""Thousands of damaged inputs, always the same: parsers raise only `UserError`, commands exit with 0 or 2.

`make fuzz` sets VPAC_FUZZ=4 for the ten thousand cases of the long version.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from untrusted.command_line import OPTIONS, VERB_WORDS, WORDS, Sandbox
from untrusted.targets import DEEP, FILES, SEEDS, TEXTS, Readers, read_text
from vpac.files import sealed

TIMES = int(os.environ.get("VPAC_FUZZ", "1"))
CASES = {
    kind: TIMES * cases
    for kind, cases in {"bytes": 84, "data": 84, "text": 100, "words": 30, "options": 70, "deep": 3, "page": 1}.items()
}
"""Of each reader."""
LEAST = 2_500 * TIMES
DONE: Counter[str] = Counter()
"""Cases that the test which is under way has carried out, by kind."""
QUIET = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
]


def fuzzed(kind):
    """The test carries out the cases of that kind, all of them: see `carried_out`."""

    def mark(test):
        test.kind = kind
        return test

    return mark


def carry_out(kind, *strategies):
    """Carry out what follows for the cases of that kind."""

    def carry(body):
        @settings(
            max_examples=CASES[kind], deadline=None, derandomize=True, database=None, suppress_health_check=QUIET,
            phases=(Phase.generate, Phase.shrink),  # to explain what was found it would trace every line
        )  # fmt: skip
        @given(st.tuples(*strategies))
        def one(values):
            DONE[kind] += 1
            body(*values)

        one()

    return carry


@pytest.fixture(autouse=True)
def carried_out(request):
    """A test carries out as many cases as it counts for."""
    DONE.clear()
    yield
    kind = getattr(request.function, "kind", None)
    assert kind is None or DONE[kind] >= CASES[kind]


def edits(size: int):
    """Some positions, and what to put there instead of how many bytes."""
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


def positions(data, path=()):
    """Where something stands in nested data."""
    yield path
    for key, value in data.items() if isinstance(data, dict) else ():
        yield from positions(value, (*path, key))


def changed(data, path, value):
    if not path:
        return value
    return data | {path[0]: changed(data[path[0]], path[1:], value)}


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    return Readers(tmp_path_factory.mktemp("fuzz"))


@fuzzed("bytes")
@pytest.mark.parametrize("name", FILES)
def test_files_with_changed_bytes(readers, name):
    def outside():
        return {path for path in readers.folder.parent.rglob("*") if not path.is_relative_to(readers.folder / "store")}

    before = outside()

    @carry_out("bytes", edits(len(readers.good[name])))
    def read(changes):
        readers.read(name, edited(readers.good[name], changes))

    assert outside() == before


@fuzzed("data")
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_files_with_changed_data_and_good_checksums(readers, name):
    good = json.loads(readers.good[name])

    @carry_out("data", st.sampled_from(list(positions(good))), values)
    def read(path, value):
        readers.forge(name, changed(good, path, value))


@fuzzed("text")
@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    code = "latin-1" if name == "policy.npy" else "utf-8"

    @carry_out(
        "text",
        st.text(max_size=60)
        | edits(len(SEEDS[name])).map(lambda c: edited(SEEDS[name].encode(code), c).decode(code, errors="replace")),
    )
    def read(text):
        read_text(name, text)


@fuzzed("deep")
@pytest.mark.parametrize("name", DEEP)
def test_agents_and_checkpoints_of_the_ppo_family(readers, name):
    pytest.importorskip("jax")

    @carry_out("deep", edits(len(readers.good[name])))
    def read(changes):
        readers.read(name, edited(readers.good[name], changes))

    if not name.endswith(".json"):
        return
    good = json.loads(readers.good[name])

    @carry_out("deep", st.sampled_from(list(positions(good))), values)
    def read_forged(path, value):
        readers.forge(name, changed(good, path, value))


@fuzzed("page")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["run/run.json", "store/studies/little.json", "failed.json"])
def test_pages_of_forged_stores(readers, name):
    good = json.loads(readers.good[name])
    good.pop("checksum")

    @carry_out("page", st.sampled_from(list(positions(good))[1:]), values)
    def read(path, value):
        with contextlib.suppress(ValueError):  # half a character
            readers.report(name, sealed(changed(good, path, value)).encode())


@fuzzed("words")
@pytest.mark.filterwarnings("ignore")
def test_the_command_line(tmp_path):
    with Sandbox(tmp_path / "sandbox").entered() as sandbox:
        words = st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=5)
        carry_out("words", st.sampled_from(VERB_WORDS) | st.text(max_size=5), words)(sandbox.speak)


@fuzzed("options")
@pytest.mark.filterwarnings("ignore")
def test_options(tmp_path):
    """Options with missing clusters, missing buckets and the like."""

    def line(words, given):
        pairs = [st.tuples(st.just(option), st.sampled_from(values)) for option, values in given.items()]
        return st.tuples(st.just(words), st.lists(st.one_of(pairs), min_size=1, max_size=4))

    lines = [line(words, given) for words, given in OPTIONS.items()]
    with Sandbox(tmp_path / "sandbox", pages=False).entered() as sandbox:

        @carry_out("options", st.one_of(lines))
        def speak(line):
            (verb, *words), options = line
            sandbox.speak(verb, [*words, *(word for option in options for word in option)])


def test_a_file_that_no_word_named_would_be_found(tmp_path, monkeypatch):
    with Sandbox(tmp_path / "sandbox").entered() as sandbox:
        monkeypatch.setattr("untrusted.command_line.main", lambda words: (sandbox.home / "x").write_text("") or 0)
        with pytest.raises(AssertionError, match="home/x"):
            sandbox.speak("list", [])


def test_there_are_thousands_of_cases(request):
    """Those of all tests of this file; each of them sees to it that it has carried out its own."""
    tests = [item for item in request.session.items if item.path == request.path]
    if {item.function.kind for item in tests if hasattr(item.function, "kind")} != set(CASES):
        pytest.skip("not all tests of this file were chosen")
    assert sum(CASES[item.function.kind] for item in tests if hasattr(item.function, "kind")) >= LEAST
