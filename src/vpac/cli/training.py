"""`vpac train`."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from vpac import algorithms
from vpac.errors import UserError

__all__ = ["Train"]

TEXT = str | None


@dataclass(frozen=True)
class Train:
    """Train an algorithm on an environment; writes policies, curves and a figure.

    Example: vpac train vpac vpac/FourRooms-v0 --psi 0.015 --runs 10
    """

    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")]
    """ac, vpac, vaac, vaac-td, or one of these with off-policy- before it; mvpi; ppo, vpac-ppo, vaac-ppo, mvpi-ppo."""
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Gymnasium id, package.module:Name-v0 or package.module:Class. Box actions need the PPO family."""
    episodes: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Episodes of each run; the PPO family counts steps. Default: 1000."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Environment steps of the PPO family. Default: a million; with --resume: as first asked for."""
    envs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Environments that the PPO family steps together."""
    preset: Annotated[TEXT, tyro.conf.arg(metavar="default|paper")] = None
    """Settings of the PPO family: today's good practice, or the paper's."""
    weighting: Annotated[TEXT, tyro.conf.arg(metavar="uniform|start")] = None
    """Of the PPO family's corrected form: variance from every visited state, or from the start."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Go on with a run of the PPO family from its last checkpoint."""
    runs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Independent runs of a tabular or linear learner. Default: 1."""
    seed: int = 0
    """Of everything random."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Where files are written. Default: results/train/ALGORITHM-ENV."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Runs at a time. Default: one for each core."""
    policy: Annotated[TEXT, tyro.conf.arg(metavar="greedy|softmax")] = None
    """Which policy is measured along the way. Default: greedy; with a budget softmax."""
    psi: Annotated[TEXT, tyro.conf.arg(metavar="PSI")] = None
    """Price of variance, in units of 1/reward: a number, warm-up:0.05:300:500, or, of the PPO family, conditioned
    (with --option psi_range=[0,0.1]). Default: the paper's, 0.015 or 0.01; the PPO family has none."""
    max_std: Annotated[float | None, tyro.conf.arg(metavar="S")] = None
    """A budget: the standard deviation of the return is at most this; finds PSI."""
    max_variance: Annotated[float | None, tyro.conf.arg(metavar="V")] = None
    """The same for the variance."""
    wait: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """Episodes, or steps of the PPO family, before a budget counts."""
    gamma: Annotated[float | None, tyro.conf.arg(metavar="G")] = None
    """Discount factor."""
    alpha_theta: Annotated[TEXT, tyro.conf.arg(metavar="RATE")] = None
    """Step size of the policy; a number or a schedule."""
    alpha_w: Annotated[TEXT, tyro.conf.arg(metavar="RATE")] = None
    """Step size of the value critic."""
    alpha_z: Annotated[TEXT, tyro.conf.arg(metavar="RATE")] = None
    """Step size of the critic of the spread."""
    form: Annotated[TEXT, tyro.conf.arg(metavar="corrected|published")] = None
    """The actor's formula."""
    variance_of: Annotated[TEXT, tyro.conf.arg(metavar="action|state|return")] = None
    """Which variance the corrected form penalises."""
    max_episode_steps: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Cut episodes off after so many steps."""
    option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Any other setting of the learner, e.g. --option baseline=false temperature=2."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Arguments of the environment, e.g. --set slip=0.1."""
    wrap: Annotated[tuple[str, ...], tyro.conf.arg(metavar="WRAPPER [KEY=VALUE …]")] = ()
    """Wrappers around it, the innermost first, e.g. --wrap RewardNoise std=2 or package.module:Wrapper."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Train, measure, write, show."""
        known = algorithms.ALGORITHMS
        if self.algorithm not in known and self.env in known:
            raise UserError(f"the algorithm comes first: vpac train {self.env} {self.algorithm}")
        if algorithms.find(self.algorithm).deep:
            return self._run_deep()
        self._refuse(("steps", "envs", "preset", "weighting", "resume"), "the PPO family")
        return self._run_tabular()

    def _refuse(self, names: tuple[str, ...], whose: str) -> None:
        """Options that the chosen algorithm does not read are mistakes."""
        instead = {
            "steps": "use --episodes N", "episodes": "use --steps N", "runs": "train again with another --seed and --out, or "
            "use vpac frontier or vpac sweep", "max_episode_steps": "use --set max_episode_steps=N",
        }  # fmt: skip
        for name in names:
            if getattr(self, name) is not None:
                raise UserError(
                    f"--{name.replace('_', '-')} is an option of {whose}, not of {self.algorithm}"
                    + (f": {instead[name]}" if name in instead else "")
                )

    def _run_deep(self) -> int:
        from vpac.cli import deep_training
        from vpac.cli.output import next_step
        from vpac.cli.reading import key_values

        tabular = (
            "episodes", "runs", "policy", "alpha_theta", "alpha_w", "alpha_z", "variance_of", "max_episode_steps", "threads",
        )  # fmt: skip
        self._refuse(tabular, "the tabular and linear learners")
        if self.algorithm == "ppo" and self.psi is not None:
            raise UserError(f"ppo has no price of variance: vpac train vpac-ppo {self.env} --psi {self.psi}")
        self._need_price()
        named = ("psi", "gamma", "form", "weighting", "envs", "preset")
        settings = {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        settings |= self._budget() | key_values(self.option)
        kind, env = algorithms.find(self.algorithm).load(), self._checked()
        if self.resume is not None:
            code = deep_training.resume(kind, env, self.resume, self.out, self.steps, self.json, settings)
            folder = self.resume
        else:
            folder = self._folder()
            code = deep_training.train(kind, env, self.steps, self.seed, folder, self.json, settings)
        price = ("--psi", *map(str, settings["psi_range"])) if settings.get("psi_range") else ()
        next_step(self.json, "evaluate", folder, *price, env=self.env)
        return code

    def _need_price(self) -> None:
        """A learner that is to care for variance and is not told how much would be plain PPO in disguise."""
        from vpac.cli.reading import key_values

        given = self.psi is not None or {"psi", "budget"} & key_values(self.option).keys()
        if not (given or self._budget() or self.resume or self.algorithm.casefold() == "ppo"):
            raise UserError(
                f"{self.algorithm} needs a price of variance, --psi PSI, in units of 1/reward, or a budget, --max-std S. "
                f"Without units: vpac frontier {self.env} --risk-aversion 0.1,0.3,1 trains the risk-neutral policy first and "
                f"says which PSI that is. Risk-neutral: vpac train ppo {self.env}"
            )

    def _budget(self) -> dict[str, Any]:
        """The setting `budget`, if there is one."""
        named = ("max_std", "max_variance", "wait")
        given = {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        if set(given) == {"wait"}:
            raise UserError("--wait belongs to a budget: add --max-std or --max-variance")
        return {"budget": given} if given else {}

    def _checked(self, discrete: bool = False) -> Any:
        """The recipe of the environment, after one was made and looked over; its actions may have to be `discrete`."""
        from gymnasium import spaces

        from vpac.cli.output import say
        from vpac.cli.reading import key_values, wrappers
        from vpac.envs.check import check_env
        from vpac.envs.make import make_env, spec_of

        arguments, wrap = key_values(self.set), wrappers(self.wrap)
        limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        with closing(make_env(self.env, wrap, **{**limit, **arguments})) as trial:
            for remark in check_env(trial).remarks:
                say(f"{self.env}: {remark}", quiet=True)
            if discrete and not isinstance(trial.action_space, spaces.Discrete):
                raise UserError(
                    f"{self.env} has {type(trial.action_space).__name__} actions and {self.algorithm} needs Discrete ones: "
                    f"vpac train vpac-ppo {self.env}"
                )
        return spec_of(self.env, wrap, **arguments)

    def _folder(self) -> Path:
        return self.out or Path("results") / "train" / f"{self.algorithm}-{re.split('[/:]', self.env)[-1]}"

    def _run_tabular(self) -> int:
        from vpac.cli.output import next_step, refuse, say, show
        from vpac.cli.reading import key_values
        from vpac.files import hold
        from vpac.lab.kinds.tabular import train
        from vpac.lab.report import training as report
        from vpac.progress import Bar

        kind = algorithms.find(self.algorithm).load()
        if self.psi == "conditioned":
            raise UserError(
                f"--psi conditioned, one policy for many prices, is for the PPO family: vpac train vpac-ppo {self.env} "
                "--psi conditioned --option psi_range=[0,0.1]"
            )
        named = ("psi", "gamma", "alpha_theta", "alpha_w", "alpha_z", "form", "variance_of", "max_episode_steps")
        settings = {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        settings |= self._budget() | key_values(self.option)
        policy = self.policy or ("greedy" if settings.get("budget") is None else "softmax")
        recipe, folder = self._checked(discrete=True), self._folder()
        episodes, runs = 1000 if self.episodes is None else self.episodes, 1 if self.runs is None else self.runs
        with hold(folder), Bar(episodes * runs, quiet=self.json) as bar:
            result = train(
                kind, recipe, episodes, runs, self.seed, policy=policy, threads=self.threads,
                progress=bar.tell, **settings,
            )  # fmt: skip
            report.write(result, folder)
        show(report.as_dict(result) if self.json else None, report.table(result))
        for budget in result.budgets:
            say(budget.words, quiet=self.json)
        say(f"wrote {folder}", quiet=self.json)
        next_step(self.json, "evaluate", folder, env=self.env)
        for error in result.diverged:
            refuse(f"a run is missing: {error}")
        return 2 if result.diverged else 0
