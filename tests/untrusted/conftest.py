from __future__ import annotations

import pytest

from quick import make_quick


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    make_quick(monkeypatch.setattr)
