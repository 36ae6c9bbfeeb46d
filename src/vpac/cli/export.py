"""`vpac export`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from vpac.cli.arguments import Elsewhere, Verb, at_price
from vpac.cli.output import note, show
from vpac.errors import UserError


@dataclass(frozen=True)
class Export(Verb):
    """Write a learned policy for other programs: an ONNX file or a C header.

    Example: vpac export results/train/vpac-ppo-CartPole-v1 policy.onnx
    """

    run_: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", name="run")]
    """A folder that `vpac train` or `policy.save` wrote, or a run of the store by its name (`vpac runs`)."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """The file: .onnx (extra `export`), or .h for C."""
    psi: Annotated[float | None, tyro.conf.arg(metavar="PSI")] = None
    """Of a policy that was trained with --psi conditioned: its one price. Default: the price is an input."""
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    store: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """The store in which runs are found by name."""

    def run(self) -> int:
        """Load and write."""
        agent = at_price(self._load(), self.psi, self.run_)
        path = agent.export(self.out)
        show({"file": str(path), "bytes": path.stat().st_size, "run": self.run_} if self.json else None)
        self.say(f"wrote {path}")
        return 0

    def _load(self) -> Any:
        """The policy. One of the PPO family in a folder needs no environment."""
        from vpac.deep.policy import NOTE, load_policy
        from vpac.lab.kinds.agents import find_trained
        from vpac.saved import AGENT

        folder = Path(self.run_)
        if (folder / NOTE).is_file() and not (folder / AGENT).is_file():
            return load_policy(folder)
        found = find_trained(self.run_, self.store)
        if len(found) > 1:
            raise UserError(f"{folder} holds {len(found)} runs: name one of them, for example {folder / 'run-0'}")
        if (Path(found[0].where) / NOTE).is_file():
            return load_policy(found[0].where)
        recipe, remark = found[0].settle(self.elsewhere.wanted("export", self.run_))
        if remark:
            note(remark)
        return found[0].load(recipe.make(), recipe)
