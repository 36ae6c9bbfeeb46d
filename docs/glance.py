"""Writes the table of docs/evidence.md: every study, with the runs and seeds that its data hold today.

python docs/glance.py --write
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "evidence.md"
TABLE = re.compile(r"(?<=<!-- table: python docs/glance.py --write -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
EXACT, GYMNASIUM = "exact", "Gymnasium"
KERNEL = f"Numba, {EXACT}"


@dataclass(frozen=True)
class StudyRow:
    """A study of the table."""

    question: str
    finding: str
    page: str
    """Where all of it is."""
    command: str
    length: str
    """Of a training."""
    stepped: str
    """What trainings are stepped by, and policies measured by."""
    data: str
    """File in docs/data."""
    seeds: int | None = None
    """Runs of an arm, if the file does not say."""


TABULAR = (
    StudyRow(
        "Do the paper's claims on four rooms and puddle worlds hold?", "29 of 35 do, 2 do not, 4 are undecided",
        "results.md#results-of-the-reproduction", "vpac reproduce",
        "1000 to 20 000 episodes", KERNEL, "", 100,
    ),
    StudyRow(
        "Which form of the gradient, judged by frontiers?", "corrected in three worlds of six, ties in two, published in one",
        "results.md#forms-by-their-frontiers", "vpac reproduce evidence",
        "1000 to 20 000 episodes", KERNEL, "evidence.jsonl", 50,
    ),
)  # fmt: skip
DEEP = (
    StudyRow(
        "How much of the possible gain in U does each learner get?", "the default most, and below PPO in one cell of 36",
        "objective.md", "python benchmarks/objective.py",
        "20 000 to 400 000 steps", f"JAX, {EXACT}", "objective.jsonl",
    ),
    StudyRow(
        "Who wins on risk tasks of the field?", "VPAC has the best mean rank",
        "rivals.md", "python benchmarks/rivals.py",
        "40 000 to 200 000 steps", f"JAX, {EXACT}", "rivals.jsonl",
    ),
    StudyRow(
        "Does over-sampling rare dangers help?", "on one task of three",
        "rivals.md#over-sampling-of-rare-dangers", "python benchmarks/oversampling.py",
        "40 000 to 120 000 steps", f"NumPy, {EXACT}", "oversampling.jsonl",
    ),
    StudyRow(
        "And on continuous tasks with noise on one side?", "VPAC on the pendulum; published VPAC on the cheetah",
        "rivals.md#continuous-tasks", "python benchmarks/sided.py",
        "100 000 to 200 000 steps", f"{GYMNASIUM}, {GYMNASIUM}", "sided.jsonl",
    ),
    StudyRow(
        "Does the paper's MuJoCo table hold at its own settings?", "not decided: one task of three, three seeds",
        "mujoco.md#at-the-papers-own-length", "python benchmarks/paper_table.py",
        "24.6 M steps", f"EnvPool, {GYMNASIUM}", "paper.jsonl",
    ),
    StudyRow(
        "Its arms with our preset, a million steps?", "no significant difference",
        "mujoco.md", "vpac reproduce mujoco/hopper-today mujoco/halfcheetah-today mujoco/walker2d-today",
        "300 000 to 1 M steps", f"EnvPool, {GYMNASIUM}", "mujoco.json", 5,
    ),
    StudyRow(
        "Does a price on the score's variance lower it?", "yes; a longer horizon does more",
        "mujoco.md#a-price-on-the-variance-of-the-score-from-scratch", "python benchmarks/score.py",
        "1 M steps", "EnvPool, EnvPool", "score.jsonl",
    ),
    StudyRow(
        "The same in pairs, from one checkpoint?", "half the variance at the same mean on HalfCheetah",
        "mujoco.md#in-pairs-what-a-price-does-to-a-trained-cheetah", "python benchmarks/paired.py",
        "1 M + 300 000 steps", "EnvPool, EnvPool", "paired.jsonl",
    ),
    StudyRow(
        "Are budgets of the variance met?", "15 of 15, and 15 of 15 on new seeds",
        "budget.md", "python benchmarks/budgets.py",
        "300 000 steps", f"JAX, {GYMNASIUM}", "budgets.jsonl",
    ),
    StudyRow(
        "And other limits?", "39 of 40, and 40 of 40 on new seeds",
        "budget.md", "python benchmarks/limits.py",
        "60 000 to 300 000 steps", f"JAX, {EXACT}", "limits.jsonl",
    ),
    StudyRow(
        "Do other measures than variance fall?", "most gain most of what there is",
        "measures.md", "python benchmarks/measures.py",
        "20 000 to 200 000 steps", f"JAX, {EXACT}", "measures.jsonl",
    ),
    StudyRow(
        "Are PPO's defaults as good as the best?", "all seven bars are met, and ten of thirteen others",
        "your-environment.md#what-the-defaults-learn", "python benchmarks/families.py",
        "50 000 to 1 M steps", f"EnvPool, {GYMNASIUM}", "families.jsonl",
    ),
    StudyRow(
        "Does PPO equal Stable-Baselines3's?", "on par",
        "deep.md#compared-with-stable-baselines3", "python benchmarks/parity.py",
        "500 000 steps", f"EnvPool, {GYMNASIUM}", "parity.json",
    ),
)  # fmt: skip


def table() -> str:
    """The rows in Markdown, the two halves one below the other."""
    lines = [
        "| question | finding | runs | seeds or runs of an arm | length of a training | stepped, measured by | command |"
    ]
    lines.append("|---|---|---:|---:|---|---|---|")
    for name, half in (("Tabular and linear learners", TABULAR), ("Deep learners", DEEP)):
        lines.append(f"| **{name}** | | | | | | |")
        for row in half:
            runs, seeds = counted(row)
            data = f" ([data](data/{row.data}))" if row.data else ""
            about = f"[{row.finding}]({row.page})"
            cells = (row.question, about, f"{runs}{data}", seeds, row.length, row.stepped, f"`{row.command}`")
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def counted(row: StudyRow) -> tuple[str, int]:
    """Runs in the data, and seeds, those that only set a price left out."""
    if not row.data:
        return re.findall(r"\(([\d ]+) runs\)", (DOCS / "results.md").read_text(encoding="utf-8"))[0], row.seeds
    text = (DOCS / "data" / row.data).read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text) if text.startswith("[") else list(map(json.loads, text.splitlines()))
    seeds = {one.get("seed", one.get("number")) for one in found} - {None, 100, 101}
    runs = sum(len(one["mean"]) if isinstance(one.get("mean"), list) else 1 for one in found)
    return f"{runs:,}".replace(",", " "), row.seeds or len(seeds)


def main() -> None:
    """Renew the table, or print it."""
    text = PAGE.read_text(encoding="utf-8")
    if "--write" in sys.argv:
        PAGE.write_text(TABLE.sub(lambda _: table(), text), encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main()
