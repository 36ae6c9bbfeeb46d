"""Finite MDPs from explicit models of other tools: PRISM and Storm files, and the arrays of MDPtoolbox.

States of those tools may have different numbers of choices. Here every state has the same number of actions: missing ones
repeat the state's last choice. A state is terminal if it has the requested label or, without one, if it only leads to itself
and pays nothing. State rewards are paid with every step from the state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError, suggestion
from vpac.files import read_input
from vpac.typing import BoolArray

MOST_MODEL_BYTES = 2**31
NumberedLine = tuple[int, list[str]]


class _Reader:
    """The lines of a file, and errors about them."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.text = read_input(self.path, MOST_MODEL_BYTES).decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"cannot read {self.path}: {error}") from None

    def lines(self) -> Iterator[NumberedLine]:
        """Number and words of each line that is not empty."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if words := line.split():
                yield number, words

    def bad(self, number: int, message: str) -> UserError:
        """The error about a line."""
        return UserError(f"{self.path}, line {number}: {message}")

    def whole(self, number: int, word: str, limit: int | None = None, what: str = "state") -> int:
        """A whole number from 0 up to `limit`."""
        if not word.isascii() or not word.isdigit() or (limit is not None and int(word) >= limit):
            below = "" if limit is None else f" below {limit}"
            raise self.bad(number, f"expected a {what}, a whole number{below}, got {word!r}")
        return int(word)

    def number(self, number: int, word: str, what: str) -> float:
        """A finite number, or a fraction such as 1/6."""
        try:
            found = float(Fraction(word) if "/" in word else word)
        except (ValueError, ZeroDivisionError):
            found = np.nan
        if not np.isfinite(found):
            raise self.bad(number, f"expected a {what}, a number, got {word!r}")
        return found


class _Model:
    """Transitions as they are read: state, choice, successor, probability, reward."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, int, int], tuple[float, int]] = {}
        self.rewards: dict[tuple[int, int, int], float] = {}
        self.state_rewards: dict[int, float] = {}
        self.names: dict[int, set[str]] = {}
        self.labels: dict[str, set[int]] = {}

    def build(self, reader: _Reader, n_states: int, terminal: str | None) -> FiniteMDP:
        """Build the MDP after all lines have been read."""
        if not self.entries:
            raise UserError(f"{reader.path} holds no transitions")
        if n_states > len(self.entries) + sum(map(len, self.labels.values())):
            raise UserError(f"{reader.path} has {len(self.entries)} transitions for {n_states} states: is it complete?")
        keys = np.array(list(self.entries), np.int64)
        state, choice, successor = keys.T
        chance = np.array([p for p, _ in self.entries.values()])
        paid = np.array([self.rewards.get(key, 0.0) + self.state_rewards.get(key[0], 0.0) for key in self.entries])
        choices = np.zeros(n_states, np.int64)
        np.maximum.at(choices, state, choice + 1)
        self._check_sums(reader, state, choice, chance, choices)
        ended = self._terminal(n_states, terminal, state, successor, paid)
        if (stuck := (choices == 0) & ~ended).any():
            raise UserError(f"{reader.path}: state {int(np.argmax(stuck))} has no transitions and is not terminal")
        count = int(choices.max())
        columns = [state, choice, successor, chance, paid]
        for action in range(1, count):
            last = (choices[state] <= action) & (choice == choices[state] - 1)
            added = [state[last], np.full(int(last.sum()), action), successor[last], chance[last], paid[last]]
            columns = [np.concatenate(pair) for pair in zip(columns, added, strict=True)]
        begun = self.labels.get("init", {0})
        start = np.isin(np.arange(n_states), list(begun)) / max(len(begun), 1)
        names = tuple(next(iter(self.names[a])) if len(self.names.get(a, ())) == 1 else str(a) for a in range(count))
        state, choice, successor, chance, paid = columns
        return FiniteMDP.from_transitions(
            n_states, count, state, choice, successor, chance, paid, 0.0, start, ended, action_names=names
        )

    def _check_sums(self, reader: _Reader, state: Any, choice: Any, chance: Any, choices: Any) -> None:
        """Check that the probabilities of every choice add up to one; the error names the line of the last of them."""
        first = np.append(0, np.cumsum(choices))[state] + choice
        sums = np.bincount(first, chance, int(choices.sum()))
        wrong = np.abs(sums - 1.0) > 1e-6
        if wrong.any():
            place = int(np.argmax(wrong))
            where = np.flatnonzero(first == place)
            if not len(where):
                owner = int(np.searchsorted(np.cumsum(choices), place, side="right"))
                raise UserError(f"{reader.path}: state {owner} leaves out a choice: they must be numbered 0, 1, …")
            line, which = max(list(self.entries.values())[i][1] for i in where), f"state {state[where[0]]}"
            which += f", choice {choice[where[0]]}"
            raise reader.bad(line, f"probabilities of {which} sum to {sums[place]:.10g}, expected 1")
        chance /= sums[first]  # files round their numbers

    def _terminal(self, n_states: int, label: str | None, state: Any, successor: Any, paid: Any) -> BoolArray:
        if label is not None:
            if label not in self.labels:
                near = suggestion(label, self.labels) or f": expected {', '.join(sorted(self.labels)) or 'none'}"
                raise UserError(f"the model has no label {label!r}{near}")
            return np.isin(np.arange(n_states), list(self.labels[label]))
        stays = np.zeros(n_states, bool)
        stays[state] = True  # a state without a line is missing, not terminal
        stays[state[(state != successor) | (paid != 0.0)]] = False
        return stays


def from_prism(
    transitions: str | Path, state_rewards: str | Path | None, transition_rewards: str | Path | None,
    labels: str | Path | None, terminal: str | None,
) -> FiniteMDP:  # fmt: skip
    """Files of PRISM (`-exportmodel`) or of Storm's explicit format; the first line of the transitions says which."""
    reader, model = _Reader(transitions), _Model()
    lines = reader.lines()
    number, head = next(lines, (1, []))
    storm = len(head) == 1 and head[0].lower() in ("dtmc", "mdp")
    if not storm and (len(head) not in (2, 3) or not all(word.isdigit() for word in head)):
        expected = "'dtmc', 'mdp' or the numbers of states, choices and transitions"
        raise reader.bad(number, f"expected {expected}, got {' '.join(head)!r}")
    chooses = head[0].lower() == "mdp" if storm else len(head) == 3
    n_states = None if storm else int(head[0])
    largest = -1
    for number, words in lines:
        key, rest = _key(reader, number, words, chooses, n_states, "probability")
        chance = reader.number(number, rest[0], "probability")
        if not 0.0 <= chance <= 1.0 + 1e-9:
            raise reader.bad(number, f"expected a probability from 0 to 1, got {rest[0]}")
        if key in model.entries:
            raise reader.bad(number, f"the transition {' '.join(words[: 2 + chooses])} was given before")
        model.entries[key] = chance, number
        largest = max(largest, key[0], key[2])
        if len(rest) > 1:
            model.names.setdefault(key[1], set()).add(rest[1])
    if not storm and len(model.entries) != int(head[-1]):
        said = f"the first line says {head[-1]} transitions, there are {len(model.entries)}"
        raise UserError(f"{reader.path}: {said}: is it complete?")
    size = n_states if n_states is not None else largest + 1
    if transition_rewards is not None:
        _read_rewards(_Reader(transition_rewards), model, chooses, size, skip=not storm)
    if state_rewards is not None:
        _read_state_rewards(_Reader(state_rewards), model, size, skip=not storm)
    if labels is not None:
        _read_labels(_Reader(labels), model, size)
    return model.build(reader, size, terminal)


def _key(
    reader: _Reader, number: int, words: list[str], chooses: bool, n_states: int | None, what: str
) -> tuple[tuple[int, int, int], list[str]]:
    """State, choice and successor of a line, and the words after them."""
    expected = f"'state {'choice ' if chooses else ''}successor {what}'"
    if len(words) < 3 + chooses:
        raise reader.bad(number, f"expected {expected}, got {' '.join(words)!r}")
    state = reader.whole(number, words[0], n_states)
    choice = reader.whole(number, words[1], None, "choice") if chooses else 0
    return (state, choice, reader.whole(number, words[1 + chooses], n_states, "successor")), words[2 + chooses :]


def _read_rewards(reader: _Reader, model: _Model, chooses: bool, size: int, skip: bool) -> None:
    for number, words in _body(reader, skip):
        key, rest = _key(reader, number, words, chooses, size, "reward")
        if key not in model.entries:
            raise reader.bad(number, f"a reward for {' '.join(words[: 2 + chooses])}, which is no transition")
        model.rewards[key] = reader.number(number, rest[0], "reward")


def _read_state_rewards(reader: _Reader, model: _Model, size: int, skip: bool) -> None:
    for number, words in _body(reader, skip):
        if len(words) != 2:
            raise reader.bad(number, f"expected 'state reward', got {' '.join(words)!r}")
        model.state_rewards[reader.whole(number, words[0], size)] = reader.number(number, words[1], "reward")


def _body(reader: _Reader, skip: bool) -> Iterator[NumberedLine]:
    """Lines after comments and, in PRISM's files, the line of sizes."""
    lines = (line for line in reader.lines() if not line[1][0].startswith("#"))
    if skip:
        next(lines, None)
    return lines


def _read_labels(reader: _Reader, model: _Model, size: int) -> None:
    """Storm: `#DECLARATION … #END`, then `state label …`. PRISM: `0="init" 1="deadlock" …`, then `state: number …`."""
    names: dict[str, str] = {}
    declared: set[str] | None = None
    for number, words in reader.lines():
        if words[0] in ("#DECLARATION", "#END"):
            declared = set() if words[0] == "#DECLARATION" else declared
            names["#"] = words[0]
        elif names.get("#") == "#DECLARATION" and declared is not None:
            declared |= set(words)
        elif "=" in words[0]:
            names |= dict(re.findall(r'(\d+)="([^"]*)"', " ".join(words)))
        else:
            state = reader.whole(number, words[0].rstrip(":"), size)
            for word in words[1:]:
                known = declared if declared is not None else names
                if word not in known:
                    raise reader.bad(number, f"the label {word!r} is not declared")
                model.labels.setdefault(word if declared is not None else names[word], set()).add(state)


DRN_STATE = re.compile(r"state\s+(\d+)\s*(\{[^}]*\})?\s*(![^\s\[]+)?\s*(\[[^\]]*\])?\s*(.*)")
DRN_ACTION = re.compile(r"action\s+(\S+)\s*(\[[^\]]*\])?\s*$")


def from_drn(path: str | Path, reward: str | None, terminal: str | None) -> FiniteMDP:
    """A model of type DTMC or MDP in Storm's DRN format."""
    reader, model = _Reader(path), _Model()
    header: dict[str, list[str]] = {}
    section, state, choice, column, n_states = "", -1, -1, None, 0
    paid = 0.0
    for number, words in reader.lines():
        line = " ".join(words)
        if line.startswith("//"):
            continue
        if line.startswith("@"):
            section = words[0].rstrip(":")
            header[section] = words[1:]
            if section == "@model":
                n_states, column = _drn_header(reader, number, header, reward)
        elif section != "@model":
            header[section] = header.get(section, []) + words
        elif line.startswith("state"):
            found = DRN_STATE.fullmatch(line)
            if found is None:
                raise reader.bad(number, f"expected 'state NUMBER [rewards] labels', got {line!r}")
            state, choice = reader.whole(number, found[1], n_states), -1
            model.state_rewards[state] = _drn_reward(reader, number, found[4], column)
            for label in found[5].split():
                model.labels.setdefault(label.strip('"'), set()).add(state)
        elif line.startswith("action"):
            found = DRN_ACTION.fullmatch(line)
            if found is None or state < 0:
                raise reader.bad(number, f"expected 'action NAME [rewards]' within a state, got {line!r}")
            choice, paid = choice + 1, _drn_reward(reader, number, found[2], column)
            model.names.setdefault(choice, set()).add(found[1])
        else:
            head, colon, chance = line.partition(":")
            if not colon or choice < 0:
                raise reader.bad(number, f"expected 'successor : probability' within an action, got {line!r}")
            key = (state, choice, reader.whole(number, head.strip(), n_states, "successor"))
            if key in model.entries:
                raise reader.bad(number, f"state {state}, choice {choice} leads to {key[2]} twice")
            model.entries[key] = reader.number(number, chance.strip(), "probability"), number
            model.rewards[key] = paid
    return model.build(reader, n_states, terminal)


def _drn_header(
    reader: _Reader, number: int, header: dict[str, list[str]], reward: str | None
) -> tuple[int, int | None]:
    """The number of states, and the index of the requested rewards."""
    kind = " ".join(header.get("@type", [])).upper()
    if kind not in ("DTMC", "MDP"):
        raise reader.bad(number, f"expected '@type: DTMC' or '@type: MDP' before @model, got {kind or 'none'}")
    if given := " ".join(header.get("@parameters", [])):
        raise reader.bad(number, f"the model has parameters ({given}): give them numbers first")
    models = header.get("@reward_models", [])
    if reward is not None and reward not in models:
        near = suggestion(reward, models) or f": expected {', '.join(models) or 'none, it has no rewards'}"
        raise UserError(f"{reader.path} has no reward model {reward!r}{near}")
    if reward is None and len(models) > 1:
        raise UserError(f"{reader.path} has several reward models: choose one of {', '.join(models)} with reward=…")
    states = reader.whole(number, (header.get("@nr_states") or [""])[0], None, "number of states")
    return states, None if not models else models.index(reward) if reward else 0


def _drn_reward(reader: _Reader, number: int, text: str | None, column: int | None) -> float:
    if text is None or column is None:
        return 0.0
    values = [word.strip() for word in text.strip("[]").split(",")]
    if column >= len(values):
        raise reader.bad(number, f"expected {column + 1} rewards, got {text}")
    return reader.number(number, values[column], "reward")


def from_mdptoolbox(transitions: Any, rewards: Any, start: ArrayLike | None, terminal: ArrayLike | None) -> FiniteMDP:
    """P[a, s, s'] or one matrix for each action, and R[s], R[s, a], R[a, s, s'] or one matrix for each action."""
    from scipy.sparse import coo_array

    try:
        matrices = [coo_array(matrix) for matrix in transitions]
        by_matrix: list[Any] = [r.toarray() if hasattr(r, "toarray") else r for r in rewards]
        table = np.asarray(by_matrix, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"transitions and rewards must be arrays of numbers, or lists of matrices: {error}") from None
    if not matrices or any(m.ndim != 2 or m.shape != (matrices[0].shape[1],) * 2 for m in matrices):
        raise UserError(
            f"expected transitions [A, S, S] or A matrices [S, S], got shapes {[list(m.shape) for m in matrices][:4]}; the "
            "arrays of MDPtoolbox for R and MATLAB are [S, S, A]: numpy.moveaxis(P, 2, 0)"
        )
    n, count = matrices[0].shape[0], len(matrices)
    action = np.repeat(np.arange(count), [m.nnz for m in matrices])
    state, successor = (np.concatenate([m.coords[i] for m in matrices]) for i in (0, 1))
    chance = np.concatenate([m.data for m in matrices])
    if table.shape == (count, n, n):
        paid = table[action, state, successor]
    elif table.shape == (n, count):
        paid = table[state, action]
    elif table.shape == (n,):
        paid = table[state]
    else:
        expected = f"[{n}], [{n}, {count}] or [{count}, {n}, {n}] like the transitions"
        raise UserError(f"expected rewards {expected}, got {list(table.shape)}")
    return FiniteMDP.from_transitions(n, count, state, action, successor, chance, paid, 0.0, start, terminal)
