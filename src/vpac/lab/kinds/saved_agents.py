"""Find agents by name: a saved folder, a folder of `vpac train`, or a stored run, by name or folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium

from vpac.envs.make import EnvOverrides, EnvRecipe
from vpac.envs.observations import arranged
from vpac.envs.remember import RememberReturn, memory_of
from vpac.errors import Newer, UserError, suggestion
from vpac.evaluation.actors import as_seen, check_fits, restored
from vpac.files import RECORD, read_bytes, write_bytes
from vpac.lab.kinds.task import learner_of, task_recipe
from vpac.lab.store.records import TRAIN, Damaged, RunFolder, trainings
from vpac.lab.store.run import Run
from vpac.lab.store.store import METRICS_FILE, Record, Result, Store, fingerprint, packed
from vpac.saved import AGENT, WEIGHTS, SavedAgent, reading

if TYPE_CHECKING:
    from vpac.deep.policy import NumpyPolicy
    from vpac.tabular.agents import Learner

ARRAYS = ("theta", "w", "z", "mean")
CHECKPOINTS = "checkpoints"
"""The folder of a training's checkpoints."""
FILES = (AGENT, WEIGHTS, "policy.json", "policy.safetensors")


def _load_stored(record: Record, made: Any, recipe: EnvRecipe) -> Any:
    """The agent of a run, for an environment made from a recipe; settings come from the task, weights from the file."""
    try:
        deep = record.run.task["kind"] == "deep"
        return stored_policy(record, made, recipe.env) if deep else stored_learner(record, recipe)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{record.run.name} does not hold an agent: {type(error).__name__}: {error!s:.200}") from None


def stored_learner(record: Record, recipe: EnvRecipe) -> Learner:
    """The tabular or linear learner of a run, as it was at the end, in the environment of a recipe."""
    there = {"env": recipe.env, "env_settings": recipe.arguments, "wrappers": [list(pair) for pair in recipe.wrappers]}
    learner, learned = learner_of({**record.run.task, **there}, record.run.seed), record.policy()
    if "theta" not in learned:
        raise UserError(f"{record.run.name} does not hold an agent: its file has no theta")
    for name, mine in zip(ARRAYS, learner.weights, strict=True):
        found = learned.get(name, mine)  # runs of earlier versions store only the policy
        if found.shape != mine.shape:
            shape = f"shape {list(mine.shape)}, this one has {list(found.shape)} ({name})"
            raise UserError(f"{recipe.env} needs a policy of {shape}")
        mine[...] = found
    return learner


def stored_policy(record: Record, made: Any, env: str) -> NumpyPolicy:
    """The policy of a run of the PPO family: its arrays are stored, the rest follows from its task."""
    from vpac.deep.options import PPOOptions
    from vpac.deep.policy import NumpyPolicy, layers_of
    from vpac.deep.price import PriceRange
    from vpac.deep.spaces import Interface

    settings = dict(record.run.task["settings"])
    options = PPOOptions.read(settings, settings.pop("preset", "default"))
    memory = None
    if options.remember != "nothing":
        gamma = options.gamma if options.variance_gamma is None else options.variance_gamma
        memory = memory_of(made) or {"gamma": float(gamma)}
        made = made if memory_of(made) else RememberReturn(made, **memory)
    arrays = record.policy()
    seen = arranged(made, "masked" in arrays)
    return NumpyPolicy(
        Interface.of(seen.observation_space, seen.action_space, env), layers_of(arrays, "weight"), layers_of(arrays, "bias"),
        options.activation, arrays.get("log_std"), arrays["mean"], arrays["scale"], options.normalise_observations,
        options.gamma, PriceRange.read(options.psi_range) if options.conditioned else None, memory=memory,
        kernels=layers_of(arrays, "kernel"), kernel_biases=layers_of(arrays, "kernel_bias"),
        strides=tuple(int(stride) for stride in arrays.get("strides", ())),
    )  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """An agent that is not loaded yet."""

    name: str
    """A short name."""
    where: str
    """The source that was read."""
    env: Any
    """The name of its environment in the file."""
    recipe: EnvRecipe | None
    """The environment of training; None: the file does not say how it was made."""
    ready: Callable[[gymnasium.Env[Any, Any], EnvRecipe], Any]
    """Loads it for an environment, made from a recipe."""
    remark: str = ""
    """A remark about it."""
    facts: Callable[[], dict[str, Any]] = dict
    """A description: the algorithm, its seed and options, and checksums of its files."""

    def load(
        self, wanted: EnvOverrides, say: Callable[[str], object], make: Callable[[EnvRecipe], Any] = EnvRecipe.make
    ) -> tuple[Any, Any, EnvRecipe]:
        """The agent, an environment that it fits, and the recipe of that environment; remarks go to `say`."""
        recipe, words = wanted.apply(self.recipe, self.where, self.env)
        if self.remark or words:
            say("; ".join(filter(None, (self.remark, words))))
        made = make(recipe)
        agent = self.ready(made, recipe)
        acts_in = as_seen(made, agent)
        check_fits(agent, acts_in.observation_space, acts_in.action_space, recipe.env)
        return agent, made, recipe


def find_agents(
    name: str, store: Path, wanted: EnvOverrides | None = None, remark: Callable[[str], object] = lambda text: None
) -> dict[str, tuple[Any, Any]]:
    """Agents by short names, each with its environment, for `vpac.evaluate`.

    `name` is a folder with `agent.json`, a folder of `vpac train` (all of its runs), or a run in the store; `wanted` changes
    the environment, by default that of training; `remark` is called with remarks about the environment.
    """
    return {one.name: one.load(wanted or EnvOverrides(), remark)[:2] for one in find_trained(name, store)}


def find_trained(name: str, store: Path) -> list[Trained]:
    """The agents under this name; for a folder of `vpac train` all of its runs, or the last checkpoint."""
    folder = store / name if name.startswith(f"{TRAIN}/") and not Path(name).is_dir() else Path(name)
    if not folder.is_dir():
        return [_stored(name, Store(store), store)]
    if (folder / AGENT).is_file():
        return [_saved(folder, short_name(folder))]
    if (folder / RECORD).is_file():
        whole = folder.resolve()
        _checked(lambda: Record.read(RunFolder(folder)))  # names a missing file
        return [_stored(whole.name, Store(whole.parent.parent), whole.parent.parent)]
    runs = sorted((p.parent for p in folder.glob(f"run-*/{AGENT}")), key=lambda p: (len(p.name), p.name))
    if runs:
        return [_saved(run, short_name(run if len(runs) > 1 else folder)) for run in runs]
    if (folder / FILES[-2]).is_file():  # of `policy.save`
        from vpac.deep.policy import load_policy

        name, env = short_name(folder), "which files of a policy do not name"
        facts = partial(_fingerprints, folder)
        return [Trained(name, str(folder), env, None, lambda *_: load_policy(folder), facts=facts)]
    damaged: list[str] = []
    for place in sorted((folder / CHECKPOINTS).glob(f"[0-9]*/{AGENT}"), reverse=True):
        after = f"{int(place.parent.name):,} iterations"
        words = f"{folder} was stopped before its end: this is its checkpoint after {after}"
        try:
            restored(SavedAgent.read(place.parent))
        except Newer:
            raise
        except UserError as error:
            damaged.append(f"passed over a damaged checkpoint: {error}")
            continue
        return [replace(_saved(place.parent, folder.resolve().name), remark="; ".join([words, *damaged]))]
    raise UserError("; ".join([f"{folder} holds no policy: expected a folder that `vpac train` wrote", *damaged]))


def short_name(folder: Path) -> str:
    """`vpac-FourRooms/run-0`: the folder and the one above it; bytes that are not UTF-8 are shown as �."""
    whole = folder.resolve()
    name = f"{whole.parent.name}/{whole.name}" if whole.name.startswith("run-") else whole.name
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def record_training(folder: Path, run: Run, result: Result, about: Mapping[str, Any]) -> None:
    """Write the files of a stored run beside the saved agent; the record, with checksums of all, is written last."""
    files = packed(run, result, about, _files(folder))
    for name in (METRICS_FILE, RECORD):
        write_bytes(folder / name, files[name])


def check_unused(folder: Path, overwrite: bool = False) -> None:
    """Reject a folder that holds a training, unless that may be overwritten."""
    stopped = any((folder / CHECKPOINTS).glob("[0-9]*"))
    if not overwrite and (stopped or (folder / AGENT).exists() or any(folder.glob(f"run-*/{AGENT}"))):
        resume = f"go on with --resume {folder}, " if stopped else ""
        raise UserError(f"{folder} holds a training already: {resume}choose another --out, or replace it, --overwrite")


def remove_training(folder: Path, keep: int = 0) -> None:
    """Remove what `vpac train` wrote before, except for the first runs; other files are left alone."""
    for run in folder.glob("run-*"):
        number = run.name.removeprefix("run-")
        if number.isdecimal() and int(number) >= keep and not run.is_symlink():
            _remove_agent(run)
            if not any(run.iterdir()):
                run.rmdir()
    _remove_agent(folder)
    for name in () if keep else ("returns.parquet", "curves.parquet"):
        (folder / name).unlink(missing_ok=True)
    for checkpoint in (folder / CHECKPOINTS).glob("[0-9]*"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    for events in (folder / "tensorboard").glob("events.out.tfevents.*"):
        events.unlink()


def _remove_agent(folder: Path) -> None:
    for name in (RECORD, METRICS_FILE, *FILES):
        (folder / name).unlink(missing_ok=True)


def _saved(folder: Path, name: str) -> Trained:
    """A saved agent; if there is a record of a training, all files that it names are checked first."""
    if (folder / RECORD).is_file():
        _checked(lambda: Record.read(RunFolder(folder)))
    saved = SavedAgent.read(folder)

    def facts() -> dict[str, Any]:
        return {key: saved.data[key] for key in ("algorithm", "seed", "options")} | _fingerprints(folder)

    def ready(made: Any, recipe: EnvRecipe) -> Any:
        return restored(saved, made)

    return Trained(name, str(folder), saved.data["env"], saved.recipe, ready, facts=facts)


def _fingerprints(folder: Path) -> dict[str, Any]:
    return {"files": {name: fingerprint(content) for name, content in _files(folder).items()}}


def _files(folder: Path) -> dict[str, bytes]:
    """The files of an agent, by name."""
    return {name: read_bytes(folder / name) for name in FILES if (folder / name).is_file()}


def _checked(read: Callable[[], Record]) -> Record:
    """The record of a run, after its files have been checked."""
    try:
        return read()
    except Damaged as damage:
        raise UserError(f"the run is damaged: {damage}") from None


def _stored(name: str, store: Store, root: Path) -> Trained:
    names = [*store.names(), *trainings(store.backend)]
    if name not in names:
        raise UserError(
            f"there is no agent {name!r}: expected a folder with agent.json, one that `vpac train` wrote, or a run in {root} "
            f"(`vpac runs --store {root}` lists them){suggestion(name, names)}"
        )
    record = _checked(lambda: store.read(name))
    with reading(Path(name)):
        task = record.run.task
        if task["kind"] not in ("training", "deep"):
            raise UserError(f"{name} is a run of kind {task['kind']!r}: only training leaves an agent")
        recipe = task_recipe(task)
    facts = {
        "algorithm": task["algorithm"], "seed": record.run.seed, "options": task["settings"], "files": record.files,
    }  # fmt: skip
    return Trained(
        name, name, recipe.env, recipe, lambda made, recipe: _load_stored(record, made, recipe), facts=lambda: facts
    )
