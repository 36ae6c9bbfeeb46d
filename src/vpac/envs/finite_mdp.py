"""A finite Markov decision process, solved by the oracle and sampled by learners.

Transitions are one list sorted by (state, action), for any number of states. Rewards are described by their mean and
variance on each transition, which determine the mean and the variance of the return; `sample` draws them from the
normal distribution with that mean and variance. `outcomes` keeps the separate rewards that a list of transitions has for
the same successor, for the distribution of the return.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vpac.checks import whole
from vpac.errors import UserError, suggestion
from vpac.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from pathlib import Path

    import gymnasium

    from vpac.envs.maps import GridMap

FEW_NODES = 2000
"""Most nodes for which reachability is computed without SciPy's graph library."""


def _graph(tails: IntArray, heads: IntArray, size: int) -> Any:
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(tails), np.int8), (tails, heads)), shape=(size, size))


def reached(tails: IntArray, heads: IntArray, sources: BoolArray) -> BoolArray:
    """The nodes that can be reached from `sources` along the edges tails → heads, including the sources."""
    size = len(sources)
    if size <= FEW_NODES:
        return _spread(tails, heads, sources)
    from scipy.sparse.csgraph import breadth_first_order

    first = np.flatnonzero(sources)
    graph = _graph(np.concatenate([tails, np.full(len(first), size)]), np.concatenate([heads, first]), size + 1)
    found = np.zeros(size + 1, bool)
    found[breadth_first_order(graph, size, return_predecessors=False)] = True
    return found[:-1]


def _spread(tails: IntArray, heads: IntArray, sources: BoolArray) -> BoolArray:
    """`reached` by breadth-first search: for few nodes faster than loading a graph library."""
    found = sources.copy()
    while True:
        before = int(found.sum())
        found[heads[found[tails]]] = True
        if int(found.sum()) == before:
            return found


def closed_classes(tails: IntArray, heads: IntArray, size: int) -> tuple[IntArray, BoolArray]:
    """The strongly connected class of each node, and whether no edge leads out of that class."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(_graph(tails, heads, size), connection="strong")
    leaves = label[tails] != label[heads]
    closed = np.ones(count, bool)
    closed[label[tails[leaves]]] = False
    return label.astype(np.int64), closed[label]


def row_sums(indptr: IntArray, entries: FloatArray) -> FloatArray:
    """Add up the last axis of `entries` row by row: out[..., i] = Σ entries[..., indptr[i]:indptr[i + 1]]."""
    sums = np.zeros((*entries.shape[:-1], len(indptr) - 1))
    filled = indptr[1:] > indptr[:-1]
    sums[..., filled] = np.add.reduceat(entries, indptr[:-1][filled], axis=-1)  # reduceat cannot sum an empty row
    return sums


def sorted_and_merged(
    row: IntArray, successor: IntArray, probability: FloatArray, mean: FloatArray, variance: FloatArray,
    n_rows: int, n_states: int,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """Sort transitions by (row, successor) and merge equal ones, keeping the reward's conditional moments."""
    order = np.argsort(row * n_states + successor, kind="stable")
    row, successor, probability = row[order], successor[order], probability[order]
    mean, variance = mean[order], variance[order]
    new = np.ones(len(row), bool)
    new[1:] = (row[1:] != row[:-1]) | (successor[1:] != successor[:-1])
    if not new.all():
        first, group = np.flatnonzero(new), np.cumsum(new) - 1
        total = np.add.reduceat(probability, first)
        weight = probability / total[group]
        merged_mean = _averages(mean, weight, first)
        spread = (mean - merged_mean[group]) ** 2
        variance = _averages(variance, weight, first) + np.add.reduceat(weight * spread, first)
        row, successor, probability, mean = row[new], successor[new], total, merged_mean
    indptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=n_rows), out=indptr[1:])
    return indptr, successor, probability, mean, variance


def _averages(values: FloatArray, weight: FloatArray, first: IntArray) -> FloatArray:
    """Weighted averages of the groups that begin at `first`; the weights of each group add up to one.

    Averages are clipped to the extremes: with rounding errors equal rewards would seem to have a variance.
    """
    low, high = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    return np.clip(np.add.reduceat(weight * values, first), low, high)


SUM_TOLERANCE = 1e-8
"""Largest distance from one of the sum of the probabilities of a state and action."""

Entries = tuple[IntArray, IntArray, FloatArray, tuple[int, int]]


def transition_entries(transition: Any) -> Entries:
    """The non-zero entries of P as (row s·A + a, successor, probability) and the sizes (S, A)."""
    if hasattr(transition, "tocoo"):
        shape = list(transition.shape)
        if len(shape) != 2 or 0 in shape or shape[0] % shape[1]:
            raise UserError(f"a sparse transition matrix must have shape [S·A, S], got {shape}")
        rows, columns = shape
        coo = transition.tocoo()
        entries = coo.row.astype(np.int64), coo.col.astype(np.int64), coo.data.astype(np.float64)
        return *entries, (columns, rows // columns)
    dense = _numbers(transition, "transition")
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
        raise UserError(f"transition must have shape [S, A, S], got {list(dense.shape)}")
    n_states, n_actions, _ = dense.shape
    flat = dense.reshape(n_states * n_actions, n_states)
    row, successor = np.nonzero(flat)
    return row, successor, flat[row, successor], (n_states, n_actions)


def reward_entries(
    reward: Any, row: IntArray, successor: IntArray, n_states: int, n_actions: int, name: str
) -> FloatArray:
    """The entries of a reward table that belong to the given transitions."""
    if hasattr(reward, "tocsr"):
        if reward.shape != (n_states * n_actions, n_states):
            raise UserError(f"{name} must have shape [{n_states * n_actions}, {n_states}], got {list(reward.shape)}")
        return np.asarray(reward.tocsr()[row, successor], np.float64).ravel()
    table = _numbers(reward, name)
    if table.ndim == 0:
        return np.full(len(row), float(table))
    if table.shape == (n_states, n_actions):
        return table.reshape(-1)[row]
    if table.shape in ((n_states, n_actions, n_states), (n_states * n_actions, n_states)):
        return table.reshape(-1, n_states)[row, successor]
    raise UserError(
        f"{name} must be one number or have shape [{n_states}, {n_actions}] or [{n_states}, {n_actions}, {n_states}], "
        f"got {list(table.shape)}"
    )


def finite(
    row: IntArray, successor: IntArray, probability: FloatArray, mean: FloatArray, variance: FloatArray, n_actions: int
) -> None:
    """Check that probabilities and variances are finite and not negative, and mean rewards finite."""
    every = (
        ("transition probability", probability, False),
        ("mean reward", mean, True),
        ("reward variance", variance, False),
    )
    for name, entries, signed in every:
        bad = ~np.isfinite(entries) if signed else ~(np.isfinite(entries) & (entries >= 0.0))
        if bad.any():
            first = int(np.argmax(bad))
            state, action = divmod(int(row[first]), n_actions)
            expected = "a finite number" if signed else "a finite number that is not negative"
            raise UserError(
                f"{name} of state {state}, action {action}, next state {int(successor[first])} is "
                f"{entries[first]:g}: expected {expected}"
            )


def rows_sum_to_one(indptr: IntArray, probability: FloatArray, terminal: BoolArray, n_actions: int) -> None:
    """Check that the probabilities of each action in each non-terminal state add up to one."""
    sums = row_sums(indptr, probability)
    bad = (np.abs(sums - 1.0) > SUM_TOLERANCE) & ~np.repeat(terminal, n_actions)
    if bad.any():
        first = int(np.argmax(bad))
        state, action = divmod(first, n_actions)
        found = f"{sums[first]:.10g}, expected 1" + (f" (and {bad.sum() - 1} more rows)" if bad.sum() > 1 else "")
        raise UserError(f"transition probabilities of state {state}, action {action} sum to {found}")


def start_distribution(start: ArrayLike | None, terminal: BoolArray) -> FloatArray:
    """A distribution over the non-terminal states; uniform if none is given."""
    if terminal.all():
        raise UserError("every state is terminal: there is nowhere to start")
    if start is None:
        return (~terminal) / float((~terminal).sum())
    distribution = _numbers(start, "start").copy()  # the caller may change the array later
    if distribution.shape != terminal.shape:
        raise UserError(f"start must have shape [{len(terminal)}], got {list(distribution.shape)}")
    bad = ~(np.isfinite(distribution) & (distribution >= 0.0))
    if bad.any():
        state, expected = int(np.argmax(bad)), "a finite number that is not negative"
        raise UserError(f"start probability of state {state} is {distribution[state]:g}: expected {expected}")
    if abs(float(distribution.sum()) - 1.0) > SUM_TOLERANCE:
        raise UserError(f"start probabilities sum to {distribution.sum():.10g}, expected 1")
    on_terminal = (distribution > 0.0) & terminal
    if on_terminal.any():
        state = int(np.argmax(on_terminal))
        raise UserError(f"start probability of terminal state {state} is {distribution[state]:g}, expected 0")
    return distribution


def mask(values: ArrayLike | None, n_states: int, name: str) -> BoolArray:
    """A boolean for each state; all false if none is given."""
    if values is None:
        return np.zeros(n_states, bool)
    found = np.asarray(values)
    if found.shape != (n_states,) or found.dtype != np.bool_:
        raise UserError(f"{name} must be bool[{n_states}], got {found.dtype}{list(found.shape)}")
    return found.copy()


def indices(values: ArrayLike, limit: int, name: str, length: int | None = None) -> IntArray:
    """A list of whole numbers from 0 up to, not including, `limit`."""
    found = _numbers(values, name)
    if found.ndim != 1 or len(found) != (len(found) if length is None else length):
        expected = "a list" if length is None else f"a list of {length} like the states"
        raise UserError(f"{name} must be {expected}, got an array of shape {list(found.shape)}")
    bad = ~((found >= 0) & (found < limit) & (found == np.floor(found)))
    if bad.any():
        first = found[np.argmax(bad)]
        raise UserError(f"{name} {first:.10g} is out of range: expected a whole number from 0 to {limit - 1}")
    return found.astype(np.int64)


def column(values: ArrayLike, name: str, length: int) -> FloatArray:
    """One number for each of `length` transitions; a single number applies to all."""
    found = _numbers(values, name)
    if found.ndim != 0 and found.shape != (length,):
        expected = f"one number or a list of {length} like the states"
        raise UserError(f"{name} must be {expected}, got an array of shape {list(found.shape)}")
    return np.broadcast_to(found, (length,))


def _numbers(values: Any, name: str) -> FloatArray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be an array of numbers: {error}") from None


LONGEST_WAY = 200
"""Most rounds of the search for states in which a policy can stay."""
DENSE_ENTRIES = 50_000_000


class FiniteMDP:
    """States, actions, transition probabilities, reward moments, a start distribution and terminal states.

    Args:
        transition: P[s, a, s'], an array of shape [S, A, S], or a `scipy.sparse` matrix of shape [S·A, S] whose row
            s·A + a belongs to state s and action a. Rows of terminal states are ignored: entering one ends the episode.
        reward_mean: mean of the reward of each transition: shaped like `transition`, or [S, A], or one number.
        reward_variance: variance of that reward, shaped likewise.
        start: d0[s], the distribution of the first state; no mass on terminal states. Default: uniform over the others.
        terminal: which states are terminal, bool[S]. Default: none.
        goal: which terminal states count as success (`Moments.goal_probability`), bool[S]. Default: all of them.
        layout: the position of each state on a map, for pictures.
        action_names: one name for each action. Default: "0", "1", ….
    """

    def __init__(
        self, transition: Any, reward_mean: Any = 0.0, reward_variance: Any = 0.0, start: ArrayLike | None = None,
        terminal: ArrayLike | None = None, *, goal: ArrayLike | None = None, layout: GridMap | None = None,
        action_names: tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        row, successor, probability, (n_states, n_actions) = transition_entries(transition)
        reward = reward_entries(reward_mean, row, successor, n_states, n_actions, "reward_mean")
        noise = reward_entries(reward_variance, row, successor, n_states, n_actions, "reward_variance")
        self._assemble(
            n_states, n_actions, row, successor, probability, reward, noise, start, terminal, goal, layout, action_names
        )

    @classmethod
    def from_transitions(
        cls, n_states: int, n_actions: int, state: ArrayLike, action: ArrayLike, successor: ArrayLike,
        probability: ArrayLike, reward_mean: ArrayLike = 0.0, reward_variance: ArrayLike = 0.0,
        start: ArrayLike | None = None, terminal: ArrayLike | None = None, *, goal: ArrayLike | None = None,
        layout: GridMap | None = None, action_names: tuple[str, ...] | None = None,
    ) -> FiniteMDP:  # fmt: skip
        """Build from a list of transitions, one entry each, in any order.

        Entries for the same (state, action, successor) are merged so that the mean and the variance of the reward
        given that transition stay exact; `outcomes` keeps them apart if their rewards differ.
        """
        whole(n_states, "n_states", 1)
        whole(n_actions, "n_actions", 1)
        row = indices(state, n_states, "state")
        row *= n_actions
        row += indices(action, n_actions, "action", len(row))
        heads = indices(successor, n_states, "successor", len(row))
        mdp = cls.__new__(cls)
        mdp._assemble(
            n_states, n_actions, row, heads,
            column(probability, "probability", len(row)),
            column(reward_mean, "reward_mean", len(row)),
            column(reward_variance, "reward_variance", len(row)),
            start, terminal, goal, layout, action_names,
        )  # fmt: skip
        return mdp

    @classmethod
    def from_map(cls, text: str, **rules: Any) -> FiniteMDP:
        """Build a grid world from a map drawn as text; `vpac.envs.maps.grid_world` lists the letters and the rules."""
        from vpac.envs.maps import grid_world

        known = grid_world.__kwdefaults__ or {}
        if unknown := [name for name in rules if name not in known]:
            near = suggestion(unknown[0], known) or f": expected {', '.join(known)}"
            raise UserError(f"a map has no rule {unknown[0]!r}{near}")
        return grid_world(text, **rules)

    @classmethod
    def from_gymnasium(cls, env: gymnasium.Env[Any, Any] | str, start: ArrayLike | None = None) -> FiniteMDP:
        """Build from a Gymnasium environment (or its id) with known transitions.

        It must be one of vpac's, or have a transition table `P[state][action] = [(probability, next state, reward,
        terminated), …]` such as FrozenLake, CliffWalking and Taxi. Time limits are not part of the MDP: pass them to the oracle
        as `horizon`.
        """
        from vpac.envs.tables import from_table

        return from_table(env, start)

    @classmethod
    def from_prism(
        cls, transitions: str | Path, *, state_rewards: str | Path | None = None,
        transition_rewards: str | Path | None = None, labels: str | Path | None = None, terminal: str | None = None,
    ) -> FiniteMDP:  # fmt: skip
        """Build from explicit files of PRISM or Storm: `.tra`, and if there are any `.srew`, `.trew` (`.rew`) and `.lab`.

        Episodes begin in the states labelled init (else in state 0) and end in those labelled `terminal` or, without it,
        in states that only lead to themselves and pay nothing. An action that a state does not have repeats its last one.
        """
        from vpac.envs.explicit import from_prism

        return from_prism(transitions, state_rewards, transition_rewards, labels, terminal)

    @classmethod
    def from_drn(cls, path: str | Path, *, reward: str | None = None, terminal: str | None = None) -> FiniteMDP:
        """Build from a DTMC or MDP in Storm's DRN format; `reward` names one of its reward models. See `from_prism`."""
        from vpac.envs.explicit import from_drn

        return from_drn(path, reward, terminal)

    @classmethod
    def from_mdptoolbox(
        cls, transitions: Any, rewards: Any, start: ArrayLike | None = None, terminal: ArrayLike | None = None
    ) -> FiniteMDP:
        """Build from the arrays of MDPtoolbox for Python: P[a, s, s'], and R[s], R[s, a] or R[a, s, s'], dense or sparse."""
        from vpac.envs.explicit import from_mdptoolbox

        return from_mdptoolbox(transitions, rewards, start, terminal)

    def _assemble(
        self, n_states: int, n_actions: int, row: IntArray, successor: IntArray, probability: FloatArray, mean: FloatArray,
        variance: FloatArray, start: ArrayLike | None, terminal: ArrayLike | None, goal: ArrayLike | None,
        layout: GridMap | None, action_names: tuple[str, ...] | None,
    ) -> None:  # fmt: skip
        self.n_states, self.n_actions = int(n_states), int(n_actions)
        self.terminal = mask(terminal, n_states, "terminal")
        self.goal = self.terminal if goal is None else mask(goal, n_states, "goal")
        if np.any(self.goal & ~self.terminal):
            raise UserError(f"goal state {int(np.argmax(self.goal & ~self.terminal))} is not terminal")
        self.start = start_distribution(start, self.terminal)
        kept = ~self.terminal[row // n_actions] & (probability != 0.0)
        entries = row[kept], successor[kept], probability[kept], mean[kept], variance[kept]
        finite(*entries, n_actions)
        self.indptr, self.successor, self.probability, self.reward, self.noise = sorted_and_merged(
            *entries, n_states * n_actions, n_states
        )
        rows_sum_to_one(self.indptr, self.probability, self.terminal, n_actions)
        self._outcomes = entries if self._different_rewards(*entries) else None
        self.layout = layout
        if layout is not None and len(layout.position) != n_states:
            raise UserError(f"a layout of {len(layout.position)} cells for {n_states} states")
        self.action_names = tuple(str(a) for a in range(n_actions)) if action_names is None else tuple(action_names)
        if len(self.action_names) != n_actions:
            raise UserError(f"{len(self.action_names)} action names for {n_actions} actions")

    def _different_rewards(
        self, row: IntArray, successor: IntArray, _p: FloatArray, mean: FloatArray, variance: FloatArray
    ) -> bool:
        """Whether transitions were merged whose rewards differ."""
        if len(row) == len(self.probability):
            return False
        place = np.searchsorted(self.row * self.n_states + self.successor, row * self.n_states + successor)
        return not (np.array_equal(self.reward[place], mean) and np.array_equal(self.noise[place], variance))

    @property
    def outcomes(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
        """(row s·A + a, successor, probability, mean and variance of the reward) as listed, in any order.

        These are the stored transitions, unless some were merged whose rewards differ. Given an outcome the reward is normal.
        """
        merged = self.row, self.successor, self.probability, self.reward, self.noise
        return merged if self._outcomes is None else self._outcomes

    @cached_property
    def may_stay(self) -> BoolArray:
        """States in which a policy may stay for ever: those with an action that surely leads to another of them.

        If there are none, every policy ends. A long search is stopped early, and the set is then too large.
        """
        stay = ~self.terminal
        for _ in range(LONGEST_WAY):
            leaves = np.bincount(self.row, ~stay[self.successor], self.n_states * self.n_actions) > 0.0
            fewer = stay & ~leaves.reshape(self.n_states, self.n_actions).all(axis=-1)
            if np.array_equal(fewer, stay):
                break
            stay = fewer
        return stay

    @cached_property
    def row(self) -> IntArray:
        """Row s·A + a of each stored transition."""
        return np.repeat(np.arange(self.n_states * self.n_actions), np.diff(self.indptr))

    @cached_property
    def transition_matrix(self) -> Any:
        """P as a `scipy.sparse` matrix of shape [S·A, S]; rows of terminal states are empty."""
        from scipy.sparse import csr_array

        # Indices of 32 bits: the time of products with a large matrix is that of reading it.
        successor, indptr = self.successor.astype(np.int32), self.indptr.astype(np.int32)
        return csr_array((self.probability, successor, indptr), shape=(self.n_states * self.n_actions, self.n_states))

    @property
    def transition(self) -> FloatArray:
        """P[s, a, s'] as a dense array; zero rows for terminal states."""
        return self._dense(self.probability)

    @property
    def reward_mean(self) -> FloatArray:
        """Mean reward of each transition as a dense [S, A, S] array; zero where there is no transition."""
        return self._dense(self.reward)

    @property
    def reward_variance(self) -> FloatArray:
        """Reward variance of each transition as a dense [S, A, S] array; zero where there is no transition."""
        return self._dense(self.noise)

    def _dense(self, entries: FloatArray) -> FloatArray:
        size = self.n_states**2 * self.n_actions
        if size > DENSE_ENTRIES:
            raise UserError(
                f"a dense [S, A, S] array of {self.n_states} states would hold {size:.1e} numbers; "
                "use the transition list (row, successor, probability, reward, noise)"
            )
        dense = np.zeros((self.n_states * self.n_actions, self.n_states))
        dense[self.row, self.successor] = entries
        return dense.reshape(self.n_states, self.n_actions, self.n_states)

    def with_start(self, start: ArrayLike) -> FiniteMDP:
        """The same MDP with another start distribution; the transitions are shared, not copied."""
        other = object.__new__(FiniteMDP)
        other.__dict__.update(self.__dict__)
        other.start = start_distribution(start, self.terminal)
        return other

    def sample_start(self, rng: np.random.Generator) -> int:
        """Draw a first state."""
        return int(rng.choice(self.n_states, p=self.start))

    def sample(self, state: int, action: int, rng: np.random.Generator) -> tuple[int, float, bool]:
        """Take `action` in `state`: the next state, the reward, and whether the episode terminated."""
        if not 0 <= state < self.n_states:
            raise UserError(f"state {state} is out of range: expected 0 to {self.n_states - 1}")
        if not 0 <= action < self.n_actions:
            raise UserError(f"action {action} is out of range: expected 0 to {self.n_actions - 1}")
        if self.terminal[state]:
            raise UserError(f"state {state} is terminal: the episode is over")
        row = state * self.n_actions + action
        first, last = self.indptr[row], self.indptr[row + 1]
        drawn = np.searchsorted(np.cumsum(self.probability[first:last]), rng.random(), side="right")
        entry = min(first + int(drawn), last - 1)
        reward = self.reward[entry]
        if self.noise[entry] > 0.0:
            reward += np.sqrt(self.noise[entry]) * rng.standard_normal()
        successor = int(self.successor[entry])
        return successor, float(reward), bool(self.terminal[successor])

    def to_gymnasium(
        self, render_mode: str | None = None, max_episode_steps: int | None = None
    ) -> gymnasium.Env[Any, Any]:
        """A Gymnasium environment that samples this MDP; truncated after `max_episode_steps`."""
        from gymnasium.wrappers import TimeLimit

        from vpac.envs.worlds import FiniteMDPEnv

        env = FiniteMDPEnv(self, render_mode=render_mode)
        return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)

    def __repr__(self) -> str:
        return (
            f"FiniteMDP({self.n_states} states, {self.n_actions} actions, {len(self.probability)} transitions, "
            f"{int(self.terminal.sum())} terminal)"
        )


def reachable(mdp: FiniteMDP) -> BoolArray:
    """The states that some policy reaches from the start distribution."""
    return reached(mdp.row // mdp.n_actions, mdp.successor, mdp.start > 0.0)
