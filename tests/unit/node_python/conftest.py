"""The role's code as Ansible imports it, and wheels made on the spot, so that no test needs a network."""

import base64
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import sys
import zipfile
from pathlib import Path

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/node_python"
if str(ROLE / "module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(ROLE / "module_utils"))


def load(path):
    spec = importlib.util.spec_from_file_location(f"node_python_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


wheelhouse_program = load(ROLE / "files/wheelhouse.py")
action_plugin = load(ROLE / "action_plugins/node_python.py")
module = load(ROLE / "library/node_python.py")


def make_wheel(folder, name, version, *, tag="py3-none-any", requires=()):
    """A wheel with one module that tells its major version."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VALUE = {version[0]}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {item}\n" for item in requires),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},{_record_hash(text)},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path


def _record_hash(text):
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def make_pip_wheel(folder):
    """The running interpreter's own pip, packed as the wheel that it came from."""
    pip = importlib.metadata.distribution("pip")
    path = folder / f"pip-{pip.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in pip.files:
            if not file.as_posix().startswith("..") and "__pycache__" not in file.parts:
                archive.write(file.locate(), file.as_posix())
    return f"pip=={pip.version}"


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    """A folder of wheels in place of a package index."""
    folder = tmp_path_factory.mktemp("index")
    folder.joinpath("PIP").write_text(make_pip_wheel(folder))
    make_wheel(folder, "alpha", "1.0")
    make_wheel(folder, "alpha", "2.0")
    make_wheel(folder, "needy", "1.0", requires=["alpha>=1"])
    make_wheel(folder, "native", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    return folder


@pytest.fixture(autouse=True, scope="session")
def offline(index):
    """Pip sees the folder of wheels and nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(index))
        patch.setattr(wheelhouse_program, "PIP", (index / "PIP").read_text())
        yield index


@pytest.fixture
def requirements(tmp_path):
    """Write a requirements file."""

    def write(*lines):
        path = tmp_path / "requirements.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def build_into(cache, path, *, python=PYTHON, glibc="2.36"):
    target = wheelhouse_program.Target(python, "x86_64", glibc)
    return wheelhouse_program.wheelhouse(wheelhouse_program.read_requirements(path), target, cache)


@pytest.fixture
def build(tmp_path):
    """Build a wheelhouse for the interpreter of the tests."""
    return functools.partial(build_into, tmp_path / "cache")


@pytest.fixture(scope="session")
def houses(tmp_path_factory):
    """Wheelhouses with alpha 1.0 and alpha 2.0, as the module is told of them."""
    folder, made = tmp_path_factory.mktemp("houses"), {}
    for version in ("1.0", "2.0"):
        path = folder / f"{version}.txt"
        path.write_text(f"alpha=={version}\n")
        answer = build_into(folder / "cache", path)
        made[version] = {"path": answer["archive"], "sha256": answer["sha256"]}
    return made


@pytest.fixture
def node(tmp_path, capsys):
    """Run the node's module like a function."""

    def run(*, check=False, **arguments):
        arguments.setdefault("venv", str(tmp_path / "node" / "try"))
        arguments.setdefault("requirements_digest", "a" * 64)
        arguments["_ansible_check_mode"] = check
        with patch_module_args(arguments), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return run
