"""The package as a stranger meets it: import, index, wheel, command line."""

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import dubito

ROOT = Path(__file__).parents[1]


def python(code: str, executable: str | Path = sys.executable, **more) -> str:
    done = subprocess.run([executable, "-c", code], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_heavy():
    loaded = json.loads(python("import sys, json, dubito; print(json.dumps(sorted(sys.modules)))"))
    assert not {"torch", "numpy", "sklearn", "matplotlib", "typer", "rich"} & set(loaded)


def test_help_loads_nothing_heavy():
    code = (
        "import sys, json\n"
        "from typer.testing import CliRunner\n"
        "from dubito.cli import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        "assert result.exit_code == 0 and 'demo' in result.output, result.output\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = json.loads(python(code).splitlines()[-1])
    assert not {"torch", "numpy", "sklearn", "matplotlib"} & set(loaded)


def test_the_command_runs_as_a_module():
    shown = subprocess.run(
        [sys.executable, "-m", "dubito", "--version"], capture_output=True, text=True, timeout=300
    )
    assert shown.returncode == 0, shown.stderr
    assert dubito.__version__ in shown.stdout


def test_every_name_of_the_index_exists():
    for name in dubito.__all__:
        assert getattr(dubito, name) is not None
    assert set(dir(dubito)) == set(dubito.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = dubito.nothing_like_it


def test_the_stub_shows_the_index():
    spec = importlib.util.spec_from_file_location("index_stub", ROOT / "tools" / "index_stub.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.stub() == (ROOT / "src" / "dubito" / "__init__.pyi").read_text(), "run tools/index_stub.py"


def test_library_code_is_silent_and_logs_under_its_name():
    printed = python("import dubito, logging, torch; dubito.nll(torch.zeros(2, 3), torch.tensor([0, 1]))")
    assert printed == ""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "dubito/py.typed" in names
    assert "dubito/__init__.pyi" in names
    assert "dubito/papers/paper_tables.json" in names
    assert all(name.startswith(("dubito/", "dubito-")) for name in names)
    assert not [name for name in names if name.endswith((".npz", ".npy", ".xz", ".z", ".png", ".mat"))]


def test_wheel_installs_and_imports_in_a_clean_environment(wheel, tmp_path):
    """A new environment gets the wheel; what it depends on is lent by this one, behind it on the path."""
    venv.create(tmp_path / "env", with_pip=True)
    bin_ = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    install = [bin_ / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=300)
    alone = {"cwd": tmp_path, "env": {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}}
    where = python("import dubito; print(dubito.__version__, dubito.__file__)", bin_ / "python", **alone)
    assert where.split()[0] == dubito.__version__
    assert str(tmp_path) in where
    site = next((tmp_path / "env").rglob("site-packages"))
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"])
    code = (
        "import torch, dubito; from dubito.papers import tables; tables.load();"
        "print(dubito.__file__, float(dubito.gce(torch.zeros(2, 3), torch.tensor([0, 1]))))"
    )
    assert str(tmp_path) in python(code, bin_ / "python", **alone)
    version = subprocess.run([bin_ / "dubito", "--version"], capture_output=True, text=True, **alone)
    assert version.stdout.strip() == dubito.__version__
