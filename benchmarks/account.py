"""Count the lines and files of `src/vpac` by origin: what was there before the plan of 16 November 2026, what was mended, new.

    python benchmarks/account.py                     the table of docs/architecture.md, in half a minute

`git blame -w -M -C` names the commit of each line. Commits after `REFACTORED` that only move or reword (`refactor`, `style`,
`docs`) are ignored, so that such a line keeps its origin. A line is new if a `feat` commit after `PLAN` wrote it, mended if a
`fix` commit did; all others were there. A file counts as new with all its lines if most of them are new and fewer than one in
twenty are older than `PLAN`.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLAN, REFACTORED = "49e9949", "48b0f24"
PACKAGES = (
    "envs", "oracle", "risk", "tabular", "deep", "evaluation", "lab/experiments", "lab/store", "lab/workers", "lab/report",
    "lab", "cli", "",
)  # fmt: skip
"""The rows; a file belongs to the first that its path begins with. "lab" is `lab/kinds`, `frontier` and `search`."""


def git(*words: str) -> str:
    return subprocess.run(("git", "-C", str(ROOT), *words), capture_output=True, text=True, check=True).stdout


def origins(path: str, before: set[str], subjects: dict[str, str], ignored: str) -> Counter[str]:
    """The lines of a file, by origin."""
    blamed = git("blame", "-w", "-M", "-C", "--ignore-revs-file", ignored, "--porcelain", "HEAD", "--", path)
    found: Counter[str] = Counter()
    for commit in re.findall(r"^([0-9a-f]{40}) \d+ \d+", blamed, re.MULTILINE):
        kind = subjects[commit].partition(":")[0]
        found["old" if commit in before else kind if kind in ("feat", "fix") else "other"] += 1
    return found


def main() -> None:
    before = set(git("rev-list", PLAN).split())
    subjects = dict(line.split(" ", 1) for line in git("log", "--format=%H %s").splitlines())
    table: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.NamedTemporaryFile("w", suffix=".revs") as ignored:
        since = git("rev-list", f"{REFACTORED}..HEAD").split()
        ignored.write(
            "".join(f"{commit}\n" for commit in since if subjects[commit].startswith(("refactor", "style", "docs")))
        )
        ignored.flush()
        for path in git("ls-files", "src/vpac/*.py").split():
            lines = origins(path, before, subjects, ignored.name)
            new = lines["feat"] > lines.total() / 2 and lines["old"] < lines.total() / 20
            inside = path.removeprefix("src/vpac/")
            row = table[next(name for name in PACKAGES if inside.startswith(f"{name}/" if name else ""))]
            row["files new"] += new
            row["files there"] += not new
            row["new"] += lines.total() if new else lines["feat"]
            row["mended"] += 0 if new else lines["fix"]
            row["there"] += 0 if new else lines["old"] + lines["other"]
    columns = ("there", "mended", "new", "files there", "files new")
    print("| package | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for name, row in [*((name or "root", table[name]) for name in PACKAGES), ("all", sum(table.values(), Counter()))]:
        print(f"| {name} | " + " | ".join(f"{row[column]:,}".replace(",", " ") for column in columns) + " |")


if __name__ == "__main__":
    main()
