"""Random small worlds for hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from reference import random_mdp
from vpac import FiniteMDP

TERMINAL, NOISE, DENSITY = st.integers(0, 2), st.sampled_from([0.0, 0.3, 4.0]), st.sampled_from([0.4, 1.0])


@dataclass
class Case:
    mdp: FiniteMDP
    theta: np.ndarray
    gamma: float
    psi: float


@st.composite
def cases(draw, terminal=TERMINAL, noise=NOISE, density=DENSITY) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_terminal = draw(terminal)
    mdp = random_mdp(
        rng,
        n_states=draw(st.integers(2, 6)) + n_terminal,
        n_actions=draw(st.integers(1, 4)),
        n_terminal=n_terminal,
        noise=draw(noise),
        density=draw(density),
    )
    theta = rng.normal(scale=draw(st.sampled_from([0.3, 1.5])), size=(mdp.n_states, mdp.n_actions))
    return Case(mdp, theta, draw(st.sampled_from([0.0, 0.5, 0.9, 0.97])), draw(st.sampled_from([0.1, 1.0, 20.0])))
