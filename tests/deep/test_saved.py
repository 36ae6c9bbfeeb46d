"""A saved agent comes back with every number, in its shape."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from vpac.deep import VPACPPO  # noqa: E402


def test_a_saved_agent_is_loaded_number_by_number(tmp_path):
    agent = VPACPPO("vpac/CatchUp-v0", psi=0.1, envs=2, hidden=(4,), seed=3)
    again = VPACPPO.load(agent.save(tmp_path / "agent"))
    mine, theirs = (jax.tree.leaves(each.networks) for each in (agent, again))
    assert any(np.ndim(leaf) == 0 for leaf in mine)  # the optimisers' counters
    for one, other in zip(mine, theirs, strict=True):
        assert one.shape == other.shape
        assert np.array_equal(one, other)
    assert again.options == agent.options
