"""`vpac offline`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vpac.cli.arguments import Discount, Elsewhere, Verb, at_price
from vpac.cli.output import note, plain_table, show
from vpac.errors import UserError

if TYPE_CHECKING:
    from vpac.evaluation.importance import OfflineEstimate, OfflineReport


@dataclass(frozen=True)
class Offline(Verb):
    """Measure a policy by a log of another one: mean, variance, CVaR of its return.

    The log has the probability of every action, as `vpac evaluate --log` writes.

    Example: vpac offline log.parquet --policy results/train/vpac-FourRooms-v0
    """

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    """A .parquet file (docs/offline.md has its columns), or minari:NAME, a data set of Minari."""
    policy: Annotated[str, tyro.conf.arg(metavar="RUN")]
    """The policy in question: a folder that `vpac train` wrote, or a stored run, by name (`vpac runs`) or folder."""
    methods: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME …")] = ()
    """Some of per-decision, doubly-robust, weighted, fitted, marginalised. Default: all."""
    gamma: Discount = None
    """Discount factor. Default: the policy's own."""
    levels: Annotated[tuple[float, ...], tyro.conf.arg(metavar="SHARE …")] = (0.05,)
    """Shares of worst episodes that CVaR looks at."""
    least: Annotated[float, tyro.conf.arg(metavar="N")] = 30.0
    """Effective episodes below which a method is refused."""
    lowest: Annotated[float | None, tyro.conf.arg(metavar="G")] = None
    """The lower bound assumes that no return is below. Default: the lowest in the log."""
    psi: Annotated[float | None, tyro.conf.arg(metavar="PSI")] = None
    """Of a policy that was trained with --psi conditioned: its one price."""
    seed: int = 0
    """Random seed of the bootstrap."""
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    store: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Where stored runs are."""

    def run(self) -> int:
        """Read, estimate, show."""
        from vpac.evaluation.importance import METHODS, offline
        from vpac.evaluation.log import load_log

        log = load_log(self.log)
        report = offline(
            log, self._agent(), gamma=self.gamma, methods=self.methods or METHODS, alphas=self.levels, least=self.least,
            lowest=self.lowest, seed=self.seed, progress=not self.json,
        )  # fmt: skip
        show(report.as_dict() if self.json else None, *([] if self.json else [self._table(report)]))
        mean, variance = report.behaviour
        self.say(f"returns in the log: mean {mean:.5g}, variance {variance:.5g}")
        assumed = "if no return is below" if self.lowest is not None else "if no return is below the lowest in the log,"
        self.say(
            f"the mean is at least {report.lower:.5g} ({100 * report.level:g} % sure, {assumed} {report.lowest:.5g})"
        )
        for remark in (*(one.refused for one in report.estimates if one.refused), *report.notes):
            self.say(f"note: {remark}")
        return 0

    def _agent(self) -> Any:
        from vpac.lab.kinds.agents import find_agents

        found = find_agents(self.policy, self.store, self.elsewhere.wanted("offline", self.policy), note)
        if len(found) > 1:
            raise UserError(f"{self.policy} holds {len(found)} runs: name one of them, for example {self.policy}/run-0")
        ((agent, _),) = found.values()
        return at_price(agent, self.psi, self.policy)

    def _table(self, report: OfflineReport) -> Any:
        title = (
            f"{report.episodes} episodes of another policy, gamma {report.gamma:g}, {100 * report.level:g} % intervals"
        )
        rows = [row for one in report.estimates if not one.refused for row in _rows(one)]
        return plain_table(title, rows, ("estimate", "interval", "effective episodes"))


def _rows(one: OfflineEstimate) -> Iterator[dict[str, str]]:
    for what, found in (
        ("mean", one.mean),
        ("variance", one.variance),
        *((f"CVaR {a:g}", x) for a, x in one.cvar.items()),
    ):
        if found is not None:
            ends = f"{found.low:.4g} … {found.high:.4g}"
            yield {
                "name": one.method, "metric": what, "estimate": f"{found.estimate:.5g}", "interval": ends,
                "effective episodes": f"{one.effective:.0f}",
            }  # fmt: skip
