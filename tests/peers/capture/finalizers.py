"""Compares the presets, and the theory behind them, with the real finalize_model_grads of each Megatron-Core minor version.

    python3 tests/peers/capture/finalizers.py --presets build/release/sumonce_preset_actions
    python3 tests/peers/capture/finalizers.py --presets ... --versions 0.16 --meshes tp2 dp4-ep2

Not part of `./dev test`: it installs 6 GB. On each mesh of finalizer_job.py, gloo ranks run a step of a model that holds a
parameter of every combination of marks and name that a finalizer tells apart, under every combination of switches; the hook
captures it and probes the finalizer. finalizer_check.py compares each gradient, each rank, and counts. Exit code 0: no
difference, 1: differences, 4: something needed is missing."""
import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))
import packages  # noqa: E402

MINORS = [f"0.{minor}" for minor in range(12, 20)]  # those that there are presets of
RUNTIME = [ROOT / "capture" / "megatron", ROOT / "trace" / "python" / "recipes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", type=Path, required=True, help="the program sumonce_preset_actions, as `./dev build` makes it")
    parser.add_argument("--folder", type=Path, default=packages.FOLDER, help="of environment, packages, captures; default %(default)s")
    parser.add_argument("--versions", nargs="+", default=MINORS, help="minor ones, the newest patch of each; default %(default)s")
    parser.add_argument("--meshes", nargs="*", default=[])
    options = parser.parse_args()
    if not os.access(options.presets, os.X_OK):
        print(f"{options.presets}: no program; ./dev build makes build/release/sumonce_preset_actions", file=sys.stderr)
        return 4
    python = packages.environment(options.folder)
    results = [run(version, python, options) for version in options.versions]
    print(f"{results.count(True)} passed, {results.count(False)} failed, {results.count(None)} skipped")
    return 1 if False in results or True not in results else 0


def run(version, python, options):
    """True: as the theory and the preset say. None: the index has no such version."""
    megatron = packages.unpacked(options.folder, "megatron-core", f"{version}.*")
    if megatron is None:
        print(f"megatron-core {version}: not in the package index")
        return None
    print(f"megatron-core {packages.version_of(megatron)}", flush=True)
    captures, start = options.folder / "captures" / version, time.monotonic()
    shutil.rmtree(captures, ignore_errors=True)
    path = ":".join(map(str, [megatron, *RUNTIME]))
    made = subprocess.run([python, "-W", "ignore", HERE / "finalizer_job.py", captures, *options.meshes],
                          env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if made.returncode:
        print(f"  not run\n{made.stderr[-4000:]}")
        return False
    checked = subprocess.run([python, HERE / "finalizer_check.py", captures, options.presets])
    print(f"  {time.monotonic() - start:.0f} s", flush=True)
    return checked.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
