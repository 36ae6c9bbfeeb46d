"""Fuzz every reader for a given time: with atheris, which looks for new paths, or else with random changes.

python -m untrusted.fuzz SECONDS        in tests/; `make fuzz` runs it
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

import numpy as np

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["vpac"]) if atheris else nullcontext():
    from untrusted.command_line import VERB_WORDS, WORDS, Sandbox
    from untrusted.targets import DEEP, FILES, SEEDS, TEXTS, Readers, read_text


PAGES = ("run/run.json", "store/studies/little.json", "failed.json")
"""What a page is built from."""


def try_one(readers: Readers, sandbox: Sandbox, data: bytes) -> None:
    """The first byte says which reader, the rest is what it reads, how what it reads is changed, or which words are said."""
    which, content = data[0] if data else 0, data[1:]
    if which == 254:
        name = PAGES[len(content) % len(PAGES)]
        readers.report(name, _changed(readers.good[name], content))
    elif which == 255:
        name = DEEP[len(content) % len(DEEP)]
        readers.read(name, _changed(readers.good[name], content))
    elif which >= 236:
        sandbox.speak(VERB_WORDS[which % len(VERB_WORDS)], [WORDS[byte % len(WORDS)] for byte in content[:6]])
    elif which % 2:
        name = list(TEXTS)[which // 2 % len(TEXTS)]
        read_text(name, _changed(SEEDS[name].encode(), content).decode(errors="replace"))
    else:
        name = FILES[which // 2 % len(FILES)]
        readers.read(name, _changed(readers.good[name], content))


def _changed(good: bytes, how: bytes) -> bytes:
    """`how` is a list of (place, cut, byte), or, if it begins with a zero, the content itself."""
    if how[:1] == b"\0":
        return how[1:]
    for i in range(0, len(how) - 3, 4):
        place = int.from_bytes(how[i : i + 2], "little") % (len(good) + 1)
        good = good[:place] + how[i + 3 : i + 4] + good[place + how[i + 2] % 16 :]
    return good


def by_chance(readers: Readers, sandbox: Sandbox, seconds: float) -> int:
    rng, until, count = np.random.default_rng(), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        try_one(readers, sandbox, rng.bytes(int(rng.integers(1, 40))))
        count += 1
    return count


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        readers, sandbox = Readers(Path(folder)), stack.enter_context(Sandbox(Path(folder) / "sandbox").entered())
        if atheris is None:
            print("without atheris (pip install atheris): by chance", file=sys.stderr)
            print(f"{by_chance(readers, sandbox, seconds):,} cases, nothing but UserError came out")
            return
        atheris.Setup([sys.argv[0], f"-max_total_time={seconds}"], lambda data: try_one(readers, sandbox, data))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
