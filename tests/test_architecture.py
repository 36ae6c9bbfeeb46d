from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import vpac

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "vpac"
LAYERS = (
    {
        "algorithms",
        "errors",
        "typing",
        "files",
        "portable",
        "interruption",
        "progress",
        "checks",
        "threads",
        "_lazy",
        "_start",
        "_version",
    },
    {"envs"},
    {"oracle"},
    {"risk"},
    {"saved"},
    {"tabular", "deep", "learners", "sb3"},
    {"evaluation"},
    {"lab", "lab.experiments"},
    {"lab.store"},
    {"lab.kinds"},
    {"lab.workers"},
    {"lab.frontier", "lab.search"},
    {"lab.report"},
    {"cli", "__init__", "__main__"},
)
"""From the ground up; a module may import from its own layer and from those above it in this list."""
PUBLIC = ("vpac", "vpac.envs", "vpac.oracle", "vpac.tabular", "vpac.risk", "vpac.evaluation")


def layer(module: str) -> int:
    parts = module.split(".")[1:] or ["__init__"]
    part = ".".join(parts[:2]) if parts[0] == "lab" else parts[0]
    (found,) = [number for number, names in enumerate(LAYERS) if part in names]
    return found


def imports(path: Path, name: str):
    """The vpac modules that a file imports for use; imports for type checking only do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "vpac")
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                module = ".".join([*name.split(".")[: -node.level], *module.split(".")]).rstrip(".")
            if module == "vpac":
                yield from (f"vpac.{alias.name}" for alias in node.names)
            elif module.split(".")[0] == "vpac":
                yield module


def back_edges(package: Path):
    for path in sorted(package.rglob("*.py")):
        name = ".".join(("vpac", *path.relative_to(package).with_suffix("").parts))
        for target in imports(path, name):
            if layer(target) > layer(name):
                yield f"{name} imports {target}"


def test_imports_point_one_way():
    assert list(back_edges(PACKAGE)) == []


def test_a_back_edge_would_be_found(tmp_path):
    (tmp_path / "envs").mkdir()
    lines = (
        "from vpac.oracle import evaluate",
        "from vpac import cli",
        "from ..oracle import uniform",
        "from .. import lab",
    )
    (tmp_path / "envs" / "bad.py").write_text("\n".join(lines))
    assert list(back_edges(tmp_path)) == [
        "vpac.envs.bad imports vpac.oracle",
        "vpac.envs.bad imports vpac.cli",
        "vpac.envs.bad imports vpac.oracle",
        "vpac.envs.bad imports vpac.lab",
    ]


def unnamed(tree: str, package: Path):
    """The modules that the tree does not name below their package, which is a line such as "    deep/  ppo  collect"."""
    named, levels = set(), []
    for line in tree.splitlines():
        indent, words = len(line) - len(line.lstrip()), line.split()
        if words and words[0].endswith("/"):
            levels = [(i, name) for i, name in levels if i < indent] + [(indent, words[0].strip("/"))]
        elif levels and indent <= levels[-1][0]:
            levels = [(i, name) for i, name in levels if i < indent]
        here = Path(*(name for _, name in levels[1:]))
        named |= {here / word for word in re.findall(r"\w+", line)}
    modules = [path.relative_to(package).with_suffix("") for path in sorted(package.rglob("*.py"))]
    return [str(path) for path in modules if path.name != "__init__" and path not in named]


def test_the_tree_of_the_page_names_every_module():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.partition("```\n")[2].partition("\ntests/")[0]
    assert unnamed(tree, PACKAGE) == []
    assert unnamed(tree.replace("checkpoint", ""), PACKAGE) == ["deep/checkpoint"]
    assert unnamed(tree.replace("learners.py", "x"), PACKAGE) == ["learners"]
    assert unnamed(tree.replace("search.py", "x"), PACKAGE) == ["lab/search"]


def undocumented(name: str, thing: object):
    """The public names below `thing` that say nothing about themselves."""
    if isinstance(thing, str | int | float | tuple | dict):
        return
    if not inspect.getdoc(thing) or inspect.getdoc(thing) == inspect.getdoc(type(thing)):
        yield name
    if not inspect.isclass(thing):
        return
    if dataclasses.is_dataclass(thing):
        yield from (f"{name}.{field}" for field in fields_without_a_docstring(thing))
    for attribute, value in vars(thing).items():
        if not attribute.startswith("_") and (callable(value) or hasattr(value, "__get__")):
            value = getattr(value, "func", None) or getattr(value, "fget", None) or getattr(thing, attribute)
            if callable(value) and not inspect.getdoc(value):
                yield f"{name}.{attribute}"


def fields_without_a_docstring(cls: type):
    (node,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        text = (
            isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        )
        if isinstance(field, ast.AnnAssign) and not text and "ClassVar" not in ast.unparse(field.annotation):
            yield field.target.id


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_documented(module):
    package = importlib.import_module(module)
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in package.__all__:
        thing = getattr(package, name)
        assert list(undocumented(f"{module}.{name}", thing)) == []
        if not inspect.ismodule(thing) and not name.startswith("__"):
            assert re.search(rf"\b{name}\b", reference), f"{module}.{name} is not in docs/api.md"


def test_an_undocumented_name_would_be_found():
    @dataclasses.dataclass
    class Documented:
        """A class."""

        field: int

        def method(self):
            pass

    assert set(undocumented("x", Documented)) == {"x.field", "x.method"}


def test_every_module_has_a_docstring_and_names_its_public_names():
    for info in pkgutil.walk_packages(vpac.__path__, "vpac."):
        if info.name == "vpac.__main__" or (info.name == "vpac.sb3" and not importlib.util.find_spec("torch")):
            continue
        module = importlib.import_module(info.name)
        assert module.__doc__, info.name
        assert all(hasattr(module, name) for name in getattr(module, "__all__", ())), info.name


@pytest.mark.parametrize(
    ("command", "most"), [(["-c", "import vpac"], 0.3), (["-m", "vpac", "--help"], 0.4)], ids=["import", "help"]
)
def test_starting_is_quick(command, most):
    """Processor time, the best of five: what it costs on an idle machine, whatever else this one is doing."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if times[-1] <= most:
            return
    pytest.fail(f"{times}: each more than {most}")


def test_heavy_packages_are_not_imported_with_vpac():
    heavy = ("jax", "jinja2", "matplotlib", "plotly", "ray", "scipy", "PIL", "torch")
    code = f"import vpac, vpac.cli, sys; print(*[m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""


def test_the_command_line_imports_no_numba_to_answer_questions():
    questions = [["--help"], ["--version"], ["list"], ["list", "experiments", "--json"], ["doctor"]]
    code = f"""if 1:
        import sys, vpac.cli
        for words in {questions}:
            vpac.cli.main(words)
            print("heavy:", words, {{"jax", "numba", "scipy"}} & {{*sys.modules}})"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    heavy = [line for line in found.stdout.splitlines() if line.startswith("heavy:")]
    assert heavy == [f"heavy: {words} set()" for words in questions]


def test_ppo_and_evaluation_import_no_numba():
    code = "import sys, vpac; vpac.VPACPPO, vpac.risk.Budget, vpac.oracle.evaluate; "
    code += "vpac.evaluate(lambda observation: 0, 'CartPole-v1', 2); print('numba' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.splitlines()[-1] == "False"


def test_to_train_and_evaluate_an_agent_of_the_ppo_family_imports_no_numba(tmp_path):
    pytest.importorskip("jax")
    code = """if 1:
        import sys
        from vpac.cli import main
        small = ["--steps", "64", "--envs", "2", "--option", "steps=8", "minibatch=16", "hidden=[4]", "epochs=1"]
        main(["train", "vpac-ppo", "CartPole-v1", "--max-std", "9", *small, "--out", "a"])
        main(["evaluate", "a", "--episodes", "5"])
        print("numba" in sys.modules)"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert found.stdout.splitlines()[-1] == "False"


def test_the_worlds_are_registered_by_importing_vpac():
    code = "import gymnasium, vpac; print(gymnasium.make('vpac/FourRooms-v0').observation_space.n)"
    found = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "104"


def test_a_misspelt_public_name_suggests_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'FiniteMDP'"):
        vpac.FinteMDP  # noqa: B018


def test_the_lock_holds_plain_versions_only():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.!+]+", line) for line in lines)


def test_hashes_are_those_of_the_lock_and_name_no_address():
    lock = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().splitlines())
    lines = (ROOT / "requirements.hashes").read_text().splitlines()
    wanted = r"(    --hash=sha256:[0-9a-f]{64}|(?P<name>[a-z0-9-]+)==(?P<version>[\w.!+]+)( ; [^/]+)?)( \\)?"
    found = [re.fullmatch(wanted, line) for line in lines]
    assert None not in found, lines[found.index(None)]
    versions = {one["name"]: one["version"] for one in found if one and one["name"]}
    assert len(versions) > 100
    assert {name: lock.get(name) for name in versions} == versions
