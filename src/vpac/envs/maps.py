"""Grid worlds drawn as text, one letter per cell.

| letter | cell |
|---|---|
| `w` or `#` | wall |
| space or `.` | free |
| `f` | frozen: leaving it pays a random reward, N(0, frozen_std²), whatever the next cell is |
| `x` | treacherous: leaving it throws you back to a start cell with probability `throw` |
| `s` | start (if there is none, every free cell but the goal is one) |
| `g` | goal, terminal |

Free cells are numbered row by row; those numbers are the states. Spaces at the beginning of all rows are indentation, not
cells: draw a free column on the left with dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vpac.checks import chance, not_negative
from vpac.envs.finite_mdp import FiniteMDP, reached
from vpac.errors import UserError
from vpac.typing import BoolArray, FloatArray, IntArray

WALLS, LETTERS = "w#", "w#. fxsg"
FOUR_MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
EIGHT_MOVES = FOUR_MOVES | {"up-right": (-1, 1), "down-right": (1, 1), "down-left": (1, -1), "up-left": (-1, -1)}


@dataclass(frozen=True)
class GridMap:
    """A parsed map: the letter of each cell, and the state of each cell."""

    letters: NDArray[np.str_]
    """One letter a cell, [rows, columns]."""
    state: IntArray
    """The state of each cell, [rows, columns]; −1 where there is a wall."""
    position: IntArray
    """The row and column of each state, [S, 2]."""

    @classmethod
    def parse(cls, text: str) -> GridMap:
        """Parse a map; an error names the row and column of the first mistake."""
        rows = _rows(text)
        if not rows:
            raise UserError("the map is empty")
        for number, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise UserError(
                    f"map row {number} has {len(row)} cells, expected {len(rows[0])} like row 0 "
                    "(write '.' for a free cell at a row's end, where editors drop spaces)"
                )
            for column, letter in enumerate(row):
                if letter not in LETTERS:
                    raise UserError(
                        f"unknown letter {letter!r} in map row {number}, column {column}: expected w or # (wall), "
                        "space or . (free), f (frozen), x (treacherous), s (start), g (goal)"
                    )
        return cls.from_letters(np.array([list(row) for row in rows]))

    @classmethod
    def from_letters(cls, letters: NDArray[np.str_]) -> GridMap:
        """Number the cells that are not walls row by row."""
        open_cells = ~np.isin(letters, list(WALLS))
        state = np.full(letters.shape, -1)
        state[open_cells] = np.arange(open_cells.sum())
        return cls(letters, state, np.argwhere(open_cells))

    @classmethod
    def strip(cls, n_states: int) -> GridMap:
        """A plain layout for states without positions: rows of at most 32 cells."""
        columns = min(n_states, 32)
        letters = np.full((-(-n_states // columns), columns), "w")
        letters.reshape(-1)[:n_states] = "."
        return cls.from_letters(letters)

    def has(self, letter: str) -> BoolArray:
        """Whether each state has the given letter, bool[S]."""
        row, column = self.position.T
        return np.asarray(self.letters[row, column] == letter, np.bool_)

    def fill(self, values: FloatArray) -> FloatArray:
        """Values by state drawn into the map, [rows, columns]; NaN where there is a wall."""
        picture = np.full(self.letters.shape, np.nan)
        picture[tuple(self.position.T)] = values
        return picture


def enlarge(text: str, factor: int) -> str:
    """The same picture, `factor` times as tall and as wide."""
    if not isinstance(factor, int | np.integer) or factor < 1:
        raise UserError(f"a map can be enlarged by a whole number from 1 up, got {factor!r}")
    return "\n".join("".join(letter * factor for letter in row) for row in _rows(text) for _ in range(factor))


def _rows(text: str) -> list[str]:
    """The rows of a map without their common indentation and without empty rows around them.

    `textwrap.dedent` would empty a row that consists of free cells drawn as spaces.
    """
    if not isinstance(text, str):
        raise UserError(f"a map is drawn as text, got {text!r}")
    rows = text.splitlines()
    margin = min((len(row) - len(row.lstrip(" ")) for row in rows if row.strip(" ")), default=len(text))
    return "\n".join(row[margin:] for row in rows).strip("\n").splitlines()


def grid_world(
    text: str, *, moves: Literal[4, 8] = 4, slip: float = 0.0, goal: int | tuple[int, int] | None = None,
    goal_reward: float = 1.0, step_reward: float = 0.0, frozen_std: float = 8.0, throw: float = 0.3,
) -> FiniteMDP:  # fmt: skip
    """The MDP of a map.

    A move into a wall has no effect. The reward is N(0, frozen_std²) when leaving a frozen cell, otherwise `goal_reward` on
    entering the goal, otherwise `step_reward`.

    Args:
        text: the map; the module's docstring lists its letters.
        moves: 4 (up, down, left, right) or 8 (with the diagonals) actions.
        slip: with this probability the move goes instead to a uniformly chosen free neighbour of the current cell.
        goal: a free cell's number or a (row, column), used instead of the letter `g`.
        goal_reward: reward for entering the goal.
        step_reward: reward for any other move.
        frozen_std: standard deviation of the reward for leaving a frozen cell.
        throw: probability of being thrown back to a start cell on leaving a treacherous cell.
    """
    if moves not in (4, 8):
        raise UserError(f"moves must be 4 or 8, got {moves!r}")
    slip, throw, frozen_std = chance(slip, "slip"), chance(throw, "throw"), not_negative(frozen_std, "frozen_std")
    layout = _with_goal(GridMap.parse(text), goal)
    directions = FOUR_MOVES if moves == 4 else EIGHT_MOVES
    neighbour = _neighbours(layout, list(directions.values()))
    terminal = layout.has("g")
    start = layout.has("s") if layout.has("s").any() else ~terminal
    if not start.any():
        raise UserError("every free cell of the map is a goal: there is nowhere to start")
    thrown = np.where(layout.has("x"), throw, 0.0)

    state, action, successor, probability = _moves(neighbour, slip, thrown, np.flatnonzero(start))
    frozen = layout.has("f")[state]
    mean = np.where(frozen, 0.0, np.where(terminal[successor], goal_reward, step_reward))
    mdp = FiniteMDP.from_transitions(
        len(layout.position), len(directions), state, action, successor, probability,
        mean, np.where(frozen, frozen_std**2, 0.0), start / float(start.sum()), terminal,
        layout=layout, action_names=tuple(directions),
    )  # fmt: skip
    _check_goal_is_reached(mdp, layout)
    return mdp


def _with_goal(layout: GridMap, goal: int | tuple[int, int] | None) -> GridMap:
    """Move the goal to the given cell, or check that the map draws one."""
    if goal is None:
        if not layout.has("g").any():
            raise UserError("the map has no goal: draw a g, or pass goal=… (a free cell's number or a row and column)")
        return layout
    n_states = len(layout.position)
    if isinstance(goal, int | np.integer):
        if not 0 <= goal < n_states:
            raise UserError(f"goal {goal} is not a free cell: expected a number from 0 to {n_states - 1}")
        cell = tuple(layout.position[goal])
    else:
        cell = tuple(goal)
        rows, columns = layout.state.shape
        inside = len(cell) == 2 and 0 <= cell[0] < rows and 0 <= cell[1] < columns
        if not inside or layout.state[cell] < 0:
            raise UserError(f"goal {cell} is not a free cell of the {rows} × {columns} map")
    letters = np.where(layout.letters == "g", ".", layout.letters)
    letters[cell] = "g"
    return GridMap.from_letters(letters)


def _neighbours(layout: GridMap, directions: Sequence[tuple[int, int]]) -> IntArray:
    """The state that each move leads to from each state, [S, moves]; −1 where a wall stands."""
    padded = np.pad(layout.state, 1, constant_values=-1)
    row, column = layout.position.T + 1
    return np.stack([padded[row + down, column + right] for down, right in directions], axis=1)


def _moves(
    neighbour: IntArray, slip: float, thrown: FloatArray, starts: IntArray
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Every transition of every action: the chosen move, the slips to each free neighbour, the throws to each start."""
    n_states, n_moves = neighbour.shape
    free = neighbour >= 0
    n_free = free.sum(axis=1, keepdims=True)
    slipped = np.where(free, slip / np.maximum(n_free, 1), 0.0)
    chosen = np.where(n_free > 0, 1.0 - slip, 1.0)
    # Probability of each move for each neighbour, and last for the cell itself: memory is a concern in a large world.
    share = np.zeros((n_states, n_moves, n_moves + 1))
    share[:, :, :n_moves] = slipped[:, None]
    share[:, range(n_moves), range(n_moves)] += np.where(free, chosen, 0.0)
    share[:, :, n_moves] = np.where(free, 0.0, chosen)
    share *= 1.0 - thrown[:, None, None]

    state, action, side = np.nonzero(share)
    successor = np.column_stack([neighbour, np.arange(n_states)])[state, side]
    probability = share[share > 0.0]
    treacherous = np.flatnonzero(thrown)
    if len(treacherous):
        s, a, to = (x.ravel() for x in np.meshgrid(treacherous, np.arange(n_moves), starts, indexing="ij"))
        state, action, successor = np.append(state, s), np.append(action, a), np.append(successor, to)
        probability = np.append(probability, thrown[s] / len(starts))
    return state, action, successor, probability


def _check_goal_is_reached(mdp: FiniteMDP, layout: GridMap) -> None:
    """Check that the goal can be reached from every start cell."""
    cut_off = (mdp.start > 0.0) & ~reached(mdp.successor, mdp.row // mdp.n_actions, mdp.terminal)
    if cut_off.any():
        row, column = layout.position[np.argmax(cut_off)]
        raise UserError(f"the goal cannot be reached from the start cell in row {row}, column {column}")
