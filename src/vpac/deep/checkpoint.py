"""Saved agents and checkpoints: agent.json and weights.safetensors, which hold numbers and text and no code.

They hold the whole state of an agent: networks, optimisers, normalisers, random streams, traces, counters.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vpac.deep.collect import Episode
from vpac.deep.logs import MetricsHistory
from vpac.deep.normaliser import RunningMoments
from vpac.envs.make import env_from_record, env_to_record
from vpac.errors import Newer, UserError
from vpac.files import make_folder, sync_folder, unwritable
from vpac.risk.budget import Multiplier
from vpac.saved import DEEP_FORMAT, SavedAgent, reading, write_agent

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO

T = TypeVar("T", bound="PPO")

EARLIER_DEFAULTS = {
    "time_aware": False, "variance_of": "state", "luck_critic": False, "psi_warm_up": 0.0, "action_masks": False,
}  # fmt: skip
"""Values of settings that agents of earlier versions do not name."""
KEPT = 2
"""Checkpoints that are kept: if the last is damaged, the one before it is used."""


def save(agent: PPO, folder: Path, underway: Mapping[str, Any] = MappingProxyType({})) -> Path:
    """Write an agent. The previous files stay valid until agent.json, which has the checksum of the weights, is replaced.

    `underway` (checkpoints only): what is needed to return to the unfinished episodes.
    """
    make_folder(folder)
    names = list(dict.fromkeys(name for row in agent.history for name in row))  # rows of older versions have fewer
    data = {
        "format": DEEP_FORMAT,
        "algorithm": type(agent).__name__,
        **env_to_record(agent.environments.name, agent.environments.recipe),
        "seed": agent.seed,
        "preset": agent.preset,
        "options": agent.options.as_dict(),
        "counters": {
            "timesteps": agent.timesteps, "iteration": agent.iteration, "episodes": agent.episodes, "span": agent.span,
            **({"restarted": agent.restarted} if underway else {}),
        },
        "generators": {name: generator.bit_generator.state for name, generator in agent.generators.items()},
        "recent": [list(episode) for episode in agent.recent],
        "history": {name: [row.get(name, math.nan) for row in agent.history] for name in names},
        "every": agent.history.every,
        "sha256": "",  # filled in by `write_agent`
    }  # fmt: skip
    if agent.controller is not None:
        data["multiplier"] = agent.controller.state.as_dict()
    agent.policy().save(folder)
    return write_agent(folder, data, _arrays(agent) | {f"underway.{name}": array for name, array in underway.items()})


def _arrays(agent: PPO) -> dict[str, Any]:
    import jax

    found = {f"networks.{i}": leaf for i, leaf in enumerate(jax.tree.leaves(agent.networks))}
    found |= {f"trace.{name}": value for name, value in agent.trace._asdict().items()}
    found |= agent.observation_moments.as_arrays("seen")
    found |= agent.reward_scale.moments.as_arrays("rewards")
    found |= agent.context.moments.as_arrays("context")
    found |= agent.pixel_moments.as_arrays("pixels") if agent.interface.image else {}
    return found | {"rewards.sums": agent.reward_scale.sums, "drift": agent.drift.sums, "ledger": agent.window.sums}


def load(kind: type[T], folder: Path, env: Any = None) -> T:
    """Load an agent of this class."""
    saved = SavedAgent.read(folder)
    saved.check_class(kind.__name__)
    data, arrays = saved.data, saved.weights()
    with reading(folder):
        made, arguments = env_from_record(data, env, folder, kind.__name__)
        agent = kind(made, seed=data["seed"], arguments=arguments or None, **(EARLIER_DEFAULTS | data["options"]))
        agent.preset = str(data.get("preset"))
        _restore(agent, data, arrays, folder)
    return agent


def _restore(agent: PPO, data: dict[str, Any], arrays: dict[str, Any], folder: Path) -> None:
    import jax
    import jax.numpy as jnp

    leaves, shape = jax.tree.flatten(agent.networks)
    for i, mine in enumerate(leaves):
        found = arrays[f"networks.{i}"]
        if found.shape != mine.shape or found.dtype != mine.dtype:
            shape = f"shape {list(found.shape)}, the environment needs {list(mine.shape)}"
            raise UserError(f"{folder}: network {i} has {shape}")
        leaves[i] = jnp.asarray(found)
    agent.updater.networks = jax.tree.unflatten(shape, leaves)
    first = agent.trace._asdict()  # earlier versions have fewer traces
    agent.trace = type(agent.trace)(**{n: jnp.asarray(arrays.get(f"trace.{n}", x)) for n, x in first.items()})
    agent.observation_moments = RunningMoments.read(arrays, "seen")
    if agent.interface.image:
        agent.pixel_moments = RunningMoments.read(arrays, "pixels")
    agent.reward_scale.moments = RunningMoments.read(arrays, "rewards")
    agent.reward_scale.sums = np.array(arrays["rewards.sums"])
    if "drift" in arrays:
        agent.context.moments = RunningMoments.read(arrays, "context")
        agent.drift.sums, agent.window.sums = np.array(arrays["drift"]), np.array(arrays["ledger"])
    counters = data["counters"]
    for name in ("timesteps", "iteration", "episodes"):
        setattr(agent, name, int(counters[name]))
    agent.span = (int(counters["span"][0]), int(counters["span"][1]))
    for name, generator in agent.generators.items():
        generator.bit_generator.state = data["generators"][name]
    if agent.controller is not None:
        agent.controller.state = Multiplier.read(data["multiplier"])
    columns = data["history"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    agent.history = MetricsHistory.read(rows, int(data.get("every", 1)), agent.iteration)  # old files have every row
    if "restarted" in counters:
        prefix = "underway."
        underway = {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
        agent.return_to(int(counters["restarted"]), underway)
    for score, discounted, length, *priced in data["recent"]:  # old files have three numbers
        agent.recent.append(Episode(*(float(x) for x in (score, discounted, length, *(priced or [discounted])))))


def write_checkpoint(agent: PPO, folder: Path) -> Path:
    """Write a checkpoint, then remove old ones."""
    make_folder(folder)
    name = f"{agent.iteration:08d}"
    part, place = folder / f".{name}.part", folder / name
    for left in folder.glob(".*.part"):  # left by a process that was killed
        if left.is_symlink():
            left.unlink()
        shutil.rmtree(left, ignore_errors=True)
    try:
        save(agent, part, agent.underway())
        if place.exists():  # written before the run was resumed from an older checkpoint because this one was damaged
            shutil.rmtree(place)
        part.rename(place)
        sync_folder(folder)
    except OSError as error:
        needed = sum(path.stat().st_size for path in part.glob("*"))
        raise unwritable(place, error, needed) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for old in _all(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def _all(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("[0-9]*") if path.name.isdecimal()) if folder.is_dir() else []


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint, valid or not."""
    return bool(_all(folder))


def latest_checkpoint(kind: type[T], folder: Path, env: Any = None) -> tuple[T | None, list[str]] | None:
    """The agent of the last valid checkpoint (or None) and the errors of later ones; None if there is no checkpoint.

    A checkpoint of a later version of vpac raises `Newer`.
    """
    damaged: list[str] = []
    for place in reversed(_all(folder)):
        try:
            return kind.load(place, env), damaged
        except Newer:  # not damaged: continuing from an older checkpoint would discard progress
            raise
        except UserError as error:
            damaged.append(str(error))
    return (None, damaged) if damaged else None
