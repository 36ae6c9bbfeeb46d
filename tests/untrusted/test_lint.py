"""No code of the package can run what it reads, by its syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import vpac

PACKAGE = Path(vpac.__file__).parent
MODULES = {
    "pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml", "code", "codeop", "runpy",
    "jsonpickle", "xmlrpc",
}  # fmt: skip
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {"load", "loads", "read_array", "fromfile", "memmap"}
IMPORTERS = {"_lazy.py", "algorithms.py", "envs/functional.py", "envs/make.py", "lab/kinds/task.py", "portable.py"}
"""Files that import by name: what users name (`envs/make.py`, and for it `envs/functional.py`); the others take module names
from fixed tables of ours."""


def findings(source: str, path: str = "x.py"):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"{path}:{node.lineno}: imports {n}" for n in names if n.split(".")[0] in MODULES)
            continue
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        given = {k.arg: ast.unparse(k.value) for k in node.keywords}
        if isinstance(node.func, ast.Name) and name in BUILTINS:
            yield f"{path}:{node.lineno}: {name}"
        if given.get("allow_pickle", "False") != "False":
            yield f"{path}:{node.lineno}: allow_pickle"
        if owner in ("np", "numpy", "np.lib.format") and name in CALLS and given.get("allow_pickle") != "False":
            yield f"{path}:{node.lineno}: {owner}.{name} without allow_pickle=False"
        if given.get("shell", "False") != "False" or (owner == "os" and name in ("system", "popen")):
            yield f"{path}:{node.lineno}: a shell"
        if name == "import_module" and path not in IMPORTERS:
            yield f"{path}:{node.lineno}: imports by name"


def test_nothing_that_is_read_is_run():
    found = [
        finding
        for path in sorted(PACKAGE.rglob("*.py"))
        for finding in findings(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from joblib import load", "import yaml", "eval('1')", "exec(text)", "__import__(name)",
        "np.load(path)", "np.load(path, allow_pickle=True)", "np.lib.format.read_array(f)", "os.system(x)",
        "subprocess.run(x, shell=True)", "importlib.import_module(data['env'])", "import marshal", "from shelve import open",
    ],
)  # fmt: skip
def test_what_would_run_it_would_be_found(source):
    assert list(findings(source))
