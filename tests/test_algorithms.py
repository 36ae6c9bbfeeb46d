from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

import vpac
from vpac import deep, tabular
from vpac.algorithms import ALGORITHMS, BY_CLASS, DEEP, PRICED, TABULAR, find
from vpac.errors import UserError


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda algorithm: algorithm.name)
def test_the_registry_names_a_public_class_with_its_options(algorithm):
    kind = algorithm.load()
    assert kind is getattr(vpac, algorithm.class_name)
    assert (kind.__name__, kind.__module__) == (algorithm.class_name, algorithm.home)
    assert algorithm.class_name in vpac.__all__
    assert algorithm.class_name in (deep if algorithm.deep else tabular).__all__
    options = algorithm.load_options()
    assert dataclasses.is_dataclass(options)
    assert algorithm.off_policy == hasattr(options, "behaviour")
    assert find(algorithm.name.upper().replace("-", "_")) is algorithm


def test_the_registry_has_every_algorithm_of_the_packages():
    found = {
        name
        for package in (tabular, deep)
        for name in package.__all__
        if hasattr(getattr(package, name), "learn") and name not in ("Learner", "OffPolicyLearner")
    }
    assert found == set(BY_CLASS)
    assert sorted([*TABULAR, *DEEP], key=str) == sorted(ALGORITHMS.values(), key=str)
    assert all(name == algorithm.name for name, algorithm in ALGORITHMS.items())


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda algorithm: algorithm.name)
def test_what_has_a_price_penalises_something(algorithm):
    kind = algorithm.load()
    assert (algorithm in PRICED) == (
        bool(kind.spread) or kind.volatility if algorithm.deep else "psi" in kind.defaults
    ), "`priced` in the registry is not what the class does"


def test_an_unknown_algorithm_suggests_the_nearest():
    with pytest.raises(
        UserError, match=r"unknown algorithm 'vpac-po': expected one of ac, .*; did you mean 'vpac-ppo'\?"
    ):
        find("vpac-po")
    with pytest.raises(UserError, match="unknown algorithm 'ppo': expected one of ac, vpac"):
        find("ppo", TABULAR)


def test_the_registry_imports_nothing_heavy():
    code = "import vpac.algorithms, sys; print(*{'numba', 'jax', 'scipy'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""
