"""What the peers run on: one virtual environment, and beside it packages unpacked in several versions.

Both come from the package index that pip is set up for, and are kept."""
import subprocess
import sys
import zipfile
from pathlib import Path

FOLDER = Path.home() / ".cache" / "sumonce" / "peers"
PACKAGES = ["torch", "numpy", "packaging", "einops", "safetensors", "peft", "transformers", "datasets", "modelscope", "json_repair",
            "pillow"]


def environment(folder):
    """The Python of the environment; its packages want no GPU."""
    python, done = folder / "venv" / "bin" / "python", folder / "installed"
    wanted = " ".join(PACKAGES)
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        done.write_text(wanted)
    return python


def unpacked(folder, package, version):
    """The folder, for PYTHONPATH, of a package without its dependencies. `version`: as pip takes it, '0.16.*' is the newest of
    them. None where the index has no such version. Megatron-Core asks for Python 3.12 from 0.17 on, and runs on 3.11."""
    place = folder / f"{package}-{version.removesuffix('.*')}"
    if not any(place.glob("*.dist-info")):
        place.mkdir(parents=True, exist_ok=True)
        python = folder / "venv" / "bin" / "python"
        command = [python, "-m", "pip", "download", "-q", "--no-deps", "--ignore-requires-python", "--only-binary=:all:"]
        if subprocess.run([*command, "-d", place, f"{package}=={version}"], stderr=subprocess.DEVNULL).returncode:
            place.rmdir()
            return None
        wheel, = place.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(place)
        wheel.unlink()
    return place


def version_of(place):
    """Of an unpacked package: '0.16.1'."""
    information, = place.glob("*.dist-info")
    return information.stem.rpartition("-")[2]
