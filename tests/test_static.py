"""What the source must not contain, found in its syntax tree rather than its text."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "dubito"
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "pickletools",
}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
LOADERS = {
    *("torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter", "torch.export.load"),
    *("numpy.fromregex", "os.system", "os.popen", "pandas.read_pickle", "np.loads", "pd.read_pickle"),
    *("torch.utils.model_zoo.load_url", "torch.hub.load_state_dict_from_url"),
}


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain, "" if it is anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}" if dotted(node.value) else ""
    return ""


def is_true(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Constant) and node.value is False)


def imports(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names] if node.level == 0 else []
    return [n for n in names if n.split(".")[0] in MODULES or n in LOADERS]


def findings(text: str) -> list[str]:
    """Every forbidden thing in a module, as "line: what"."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found += [f"{node.lineno}: import {name}" for name in imports(node)]
        elif isinstance(node, ast.Attribute) and dotted(node) in LOADERS:
            found.append(f"{node.lineno}: {dotted(node)}")
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in CALLS or name in {f"builtins.{call}" for call in CALLS}:
                found.append(f"{node.lineno}: {name}()")
            if name.endswith("import_module") and node.args and isinstance(node.args[0], ast.Constant):
                found += [f"{node.lineno}: import {m}" for m in MODULES if node.args[0].value == m]
            for keyword in node.keywords:
                if keyword.arg in ("shell", "allow_pickle") and is_true(keyword.value):
                    found.append(f"{node.lineno}: {keyword.arg}=")
    return found


@pytest.mark.rel
def test_nothing_in_the_source_can_run_code_from_a_file(scorecard: Callable[..., None]) -> None:
    """Scorecard 29: no pickle, torch.load, eval, exec, shell=True, allow_pickle.

    Not even in the one reader of pickled files, which walks opcodes of an allowlist and imports no unpickler.
    """
    files = sorted(SOURCE.rglob("*.py"))
    assert SOURCE / "data" / "_pickles.py" in files
    found = [f"{p.relative_to(SOURCE)}:{item}" for p in files for item in findings(p.read_text())]
    scorecard(29, findings=len(found))
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import pickle as p",
        "import torch\ntorch.load('x')",
        "import torch\nf = torch.load",
        "from torch import load",
        "eval('1')",
        "import builtins\nbuiltins.exec('1')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=flag)",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "__import__('pickle')",
        "import importlib\nimportlib.import_module('pickle')",
        "def f():\n    from cloudpickle import loads",
    ],
)
def test_the_check_itself_can_fail(text: str) -> None:
    assert findings(text)


def test_the_check_leaves_the_innocent_alone() -> None:
    lines = "import torch", "model.eval()", "torch.compile(f)", "re.compile('x')", "safetensors.torch.load(b)"
    assert findings("\n".join([*lines, "np.load(f, allow_pickle=False)"])) == []
