"""Runs the hooks in real jobs, and compares what they capture with the captures in tests/data that were made without them.

    python3 tests/peers/capture/real_jobs.py
    python3 tests/peers/capture/real_jobs.py --filter lora --captures tests/data/captures

Not part of `./dev test`: it installs 6 GB. Megatron-Core, mcore-bridge and PEFT as they are, on gloo ranks; every tensor must be
the same to 2e-4 of its norm, and so must the marks, modules, groups, mesh and norms. Then the hook's own test on every version,
a training that must not change by it, and what a captured step costs. Exit code 0: all good, 1: not."""
import argparse
import fnmatch
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
from finalizers import MINORS  # noqa: E402

RUNTIME = [ROOT / "capture" / "megatron", ROOT / "capture" / "torch", ROOT / "trace" / "python", ROOT / "trace" / "python" / "recipes"]
# cases -> Megatron-Core, mcore-bridge
GPT = {
    ("lora-replica-bug", "lora-te-linear-norm-tp-times"): ("0.16", "1.5.2"),
    ("lora-replica-fixed", "gdn-gamma-tp2-bug"): ("0.16", "1.6.5"),
    ("plain-dp2-tp2", "plain-dp2-tp2-per-token", "plain-dp2-distributed-optimizer", "tied-pp2-right", "moe-ep2-dp2-right",
     "moe-tp2-ep1-etp1-bug"): ("0.16", None),
    ("moe-tp2-ep1-etp1-0.19-right",): ("0.19", None),
}
# On every version: the layers, marks and sums of these have not changed from 0.12 on; of the last one, the marks have in 0.19
# (partition_dim of experts' second weight is 1, and was 0).
UNCHANGED = ("plain-dp2-tp2-per-token", "plain-dp2-distributed-optimizer", "tied-pp2-right", "moe-ep2-dp2-right")
TORCH = ("ddp-accumulation-right", "ddp-no-sync-on-last-bug", "ddp-never-synced-bug", "dtensor-tp2-right",
         "dtensor-tp2-adapter-unreduced-bug")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=Path, default=ROOT / "tests" / "data" / "captures", help="default %(default)s")
    parser.add_argument("--folder", type=Path, default=packages.FOLDER, help="of environment, packages, captures; default %(default)s")
    parser.add_argument("--filter", default="*", help="of names, '*' and '?' allowed: cases, hook, unchanged, cost")
    options = parser.parse_args()
    python = packages.environment(options.folder)
    results = []
    every = [(UNCHANGED[:3] if m == "0.19" else UNCHANGED, (m, None)) for m in MINORS if m != "0.16"]
    for cases, (megatron, bridge) in [*GPT.items(), *every, (TORCH, (None, None))]:
        job = "torch_jobs.py" if cases is TORCH else "gpt_jobs.py"
        results += [compared(name, job, megatron, bridge, python, options) for name in wanted(cases, options)]
    for version in wanted([f"hook-{m}" for m in MINORS], options):
        results.append(ran(version, ["megatron_hook_test.py"], version.partition("-")[2], None, python, options))
    for name in wanted(["unchanged", "cost"], options):
        shutil.rmtree(options.folder / "jobs" / name, ignore_errors=True)
        results.append(ran(name, ["gpt_jobs.py", options.folder / "jobs", name], "0.16", None, python, options))
    print(f"{results.count(True)} passed, {results.count(False)} failed, 0 skipped")
    return 0 if all(results) and results else 1


def wanted(names, options):
    return [n for n in names if fnmatch.fnmatch(n, f"*{options.filter.strip('*')}*")]


def compared(name, job, megatron, bridge, python, options):
    out = options.folder / "jobs" / (megatron or "torch")
    shutil.rmtree(out / name, ignore_errors=True)
    return (ran(f"{name} ({megatron or 'torch'})", [job, out, name], megatron, bridge, python, options)
            and subprocess.run([python, HERE / "capture_check.py", out, options.captures, name]).returncode == 0)


def ran(name, command, megatron, bridge, python, options):
    path = [packages.unpacked(options.folder, package, version) for package, version in
            (("megatron-core", megatron and f"{megatron}.*"), ("mcore-bridge", bridge)) if version]
    start, script = time.monotonic(), HERE / command[0]
    done = subprocess.run([python, "-W", "ignore", script, *command[1:]], capture_output=True, text=True, env=os.environ | {
        "PYTHONPATH": ":".join(map(str, [*path, *RUNTIME])), "OMP_NUM_THREADS": "1"})
    said = [line for line in done.stdout.splitlines() if line.startswith("cost")]
    print(f"{name}: {'ran' if done.returncode == 0 else 'failed'} in {time.monotonic() - start:.0f} s"
          + ("".join(f"\n  {line}" for line in said) if done.returncode == 0 else f"\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"),
          flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
