"""Tasks from the literature on risk-averse methods, built from their papers' descriptions, in a simple form.

Three are finite, so the oracle can solve them and `jax:ID` compiles trainings in them: the guarded maze, car following and
server allocation (Greenberg, Chow, Ghavamzadeh and Mannor 2022, "Efficient Risk-Averse Reinforcement Learning"). Two are
wrappers around tasks of Gymnasium, with noise on one side (Luo, Liu, Poupart and Pan 2023, "An Alternative to Variance: Gini
Deviation for Risk-averse Policy Gradient"). In each a policy can avoid the risk at the cost of some of the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from vpac.checks import chance, not_negative, whole
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import FOUR_MOVES, GridMap
from vpac.envs.noise import AnyEnv, AnyWrapper, StepResult
from vpac.envs.worlds import FiniteMDPEnv
from vpac.errors import UserError

Arrival = tuple[int, int, int, float, float]
"""State, action, successor, probability, reward."""
GUARDED_MAZE = """
wwwwwwww
wwwxwwww
ws.x..gw
w wwww w
w wwww w
w      w
wwwwwwww
"""
"""The path through the gate x takes 5 steps, the path around 11. After meeting the guard the agent is in the upper x."""


def _process(n: int, actions: int, outcomes: Iterable[Arrival], start: int, terminal: int, **more: Any) -> FiniteMDP:
    """An MDP with one start and one end, from its outcomes."""
    state, action, after, chance, pay = (np.array(column) for column in zip(*outcomes, strict=True))
    ones = np.arange(n)
    return FiniteMDP.from_transitions(
        n, actions, state, action, after, chance, pay, start=ones == start, terminal=ones == terminal, **more
    )


class GuardedMaze(FiniteMDPEnv):
    """A short path past a guard, who is there one time in five and takes a toll, or a long path around.

    Every step costs 1 and the goal pays 16. In the gate the guard is met with probability 0.2, which costs 20 more. The short
    path has mean 16 − 5 − 4 = 7 and variance 64, the long path 5 and 0. Registered as `vpac/GuardedMaze-v0` with a limit of 100
    steps.

    Args:
        guard: probability that the guard is there.
        toll: cost of meeting the guard.
        goal_reward: reward of the goal, in addition to the arriving step's cost.
        render_mode: "ansi" or "rgb_array".
        trajectory: also draw the path.
    """

    def __init__(
        self, guard: float = 0.2, toll: float = 20.0, goal_reward: float = 16.0, render_mode: str | None = None,
        trajectory: bool = False,
    ) -> None:  # fmt: skip
        layout, meets = GridMap.parse(GUARDED_MAZE), chance(guard, "guard")
        place = {state: (int(row), int(column)) for state, (row, column) in enumerate(layout.position)}
        start, caught, gate, goal = (int(s) for letter in "sxg" for s in np.flatnonzero(layout.has(letter)))

        def outcomes() -> Iterator[Arrival]:
            for state in set(place) - {goal}:
                row, column = place[gate if state == caught else state]
                for action, (down, right) in enumerate(FOUR_MOVES.values()):
                    after = int(layout.state[row + down, column + right])
                    after = state if after in (-1, caught) else after
                    pay = -1.0 + goal_reward * (after == goal)
                    yield state, action, after, 1.0 - meets * (after == gate != state), pay
                    if after == gate != state:
                        yield state, action, caught, meets, pay - toll

        names = tuple(FOUR_MOVES)
        mdp = _process(len(place), len(names), outcomes(), start, goal, layout=layout, action_names=names)
        super().__init__(mdp, render_mode, trajectory)


class CarFollowing(FiniteMDPEnv):
    """Follow a car: a small gap pays more, but the car may brake at any time, and too small a gap then ends in a crash.

    The gap has 8 widths. Each of 30 steps pays 1 − (gap − 1)/7; the actions widen, keep or narrow the gap by one. In a step
    the leader begins to brake with probability 0.03 and continues to brake with probability 0.5; while it brakes the gap
    shrinks by 2. At a gap of 0 or less you crash: the episode ends with −20. The state is the step, the gap and whether the
    leader brakes. Registered as `vpac/CarFollowing-v0`.

    Args:
        brakes: probability that the leader begins to brake.
        crash: cost of a crash.
        steps: length of an episode.
        render_mode: "ansi" or "rgb_array".
        trajectory: also draw the path.
    """

    def __init__(
        self, brakes: float = 0.03, crash: float = 20.0, steps: int = 30, render_mode: str | None = None,
        trajectory: bool = False,
    ) -> None:  # fmt: skip
        begins, widths, length = chance(brakes, "brakes"), 8, whole(steps, "steps", 1)
        end = 2 * widths * length

        def state_of(step: int, gap: int, braking: int) -> int:
            return (step * widths + gap - 1) * 2 + braking if step < length else end

        def outcomes() -> Iterator[Arrival]:
            for step, gap, braking, action in product(range(length), range(1, widths + 1), (0, 1), range(3)):
                for next_braking, p in ((1, 0.5 if braking else begins), (0, 0.5 if braking else 1.0 - begins)):
                    after = min(gap + 1 - action, widths) - 2 * next_braking
                    pay = 1.0 - (max(after, 1) - 1) / (widths - 1) if after > 0 else -float(crash)
                    there = state_of(step + 1, after, next_braking) if after > 0 else end
                    yield state_of(step, gap, braking), action, there, p, pay

        names = ("fall back", "keep", "close up")
        mdp = _process(end + 1, 3, outcomes(), state_of(0, widths // 2, 0), end, action_names=names)
        super().__init__(mdp, render_mode, trajectory)


class ServerAllocation(FiniteMDPEnv):
    """Rent servers for requests with rare rushes: too few servers then cost much, idle ones always cost a little.

    There are 0 to 6 servers; each of 30 steps removes one, keeps the number or adds one, which takes until the next step.
    Calm steps have 1 request; with probability 0.03 a rush of 6 begins, and a rush continues with probability 0.7. A server
    costs 0.3 a step, an unserved request 3. The state is the step, the number of servers and whether there is a rush.
    Registered as `vpac/ServerAllocation-v0`.

    Args:
        rush: probability that a rush begins.
        unserved: cost of an unserved request.
        server_cost: cost of a server per step.
        steps: length of an episode.
        render_mode: "ansi" or "rgb_array".
        trajectory: also draw the path.
    """

    def __init__(
        self, rush: float = 0.03, unserved: float = 3.0, server_cost: float = 0.3, steps: int = 30,
        render_mode: str | None = None, trajectory: bool = False,
    ) -> None:  # fmt: skip
        begins, most, length = chance(rush, "rush"), 6, whole(steps, "steps", 1)
        end = 2 * (most + 1) * length

        def state_of(step: int, servers: int, busy: int) -> int:
            return (step * (most + 1) + servers) * 2 + busy if step < length else end

        def outcomes() -> Iterator[Arrival]:
            for step, servers, busy, action in product(range(length), range(most + 1), (0, 1), range(3)):
                for next_busy, p in ((1, 0.7 if busy else begins), (0, 0.3 if busy else 1.0 - begins)):
                    requests = 6 if next_busy else 1
                    pay = -server_cost * servers - unserved * max(requests - servers, 0)
                    there = state_of(step + 1, int(np.clip(servers + action - 1, 0, most)), next_busy)
                    yield state_of(step, servers, busy), action, there, p, pay

        mdp = _process(end + 1, 3, outcomes(), state_of(0, 1, 0), end, action_names=("give back", "hold", "add"))
        super().__init__(mdp, render_mode, trajectory)


class BothDirections(AnyWrapper, RecordConstructorArgs):
    """Rewards speed in either direction along x: |forward reward| in place of the forward reward of a MuJoCo task.

    Args:
        env: a task whose `info` holds `reward_forward`, HalfCheetah-v5 or Swimmer-v5 for example.
    """

    def __init__(self, env: AnyEnv) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: Any) -> StepResult:
        """Take an action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "reward_forward" not in info:
            known = ", ".join(sorted(info)) or "nothing"
            raise UserError(f"BothDirections needs info['reward_forward']; it holds {known}")
        forward = float(info["reward_forward"])
        return observation, float(reward) + abs(forward) - forward, terminated, truncated, info


class NoisyLanding(AnyWrapper, RecordConstructorArgs):
    """Adds N(0, std²) to the reward of an episode's last step if it ends to the right of `low`: a zone to avoid.

    Args:
        env: LunarLander, or another task whose first observed number is the position along x.
        std: standard deviation, in the units of the reward.
        low: left end of the noisy zone.
    """

    def __init__(self, env: AnyEnv, std: float = 100.0, low: float = 0.0) -> None:
        RecordConstructorArgs.__init__(self, std=std, low=low)
        gymnasium.Wrapper.__init__(self, env)
        self.std, self.low = not_negative(std, "std"), float(low)

    def step(self, action: Any) -> StepResult:
        """Take an action; `info["noisy"]` says whether the reward got noise."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        noise = self.std * self.np_random.standard_normal() if terminated else 0.0
        noisy = bool(terminated and float(observation[0]) > self.low)
        return observation, float(reward) + noise * noisy, terminated, truncated, {**info, "noisy": noisy}
