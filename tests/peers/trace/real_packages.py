"""Traces the recipes on the real packages and has sumonce prove them. Not part of `./dev test`: it installs 6 GB.

    python3 tests/peers/trace/real_packages.py --sumonce build/release/sumonce
    python3 tests/peers/trace/real_packages.py --sumonce build/release/sumonce --filter lora

--folder holds the virtual environment, the unpacked packages and the traces (kept, default ~/.cache/sumonce/peers). Each
recipe's wrong parameters are compared with those of the like-named trace in tests/data/traces, where there is one. Exit code
0: all as expected, 1: not, 4: something needed is missing."""
import argparse
import fnmatch
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "trace" / "python" / "recipes"
sys.path.insert(0, str(ROOT / "tests" / "peers"))
import packages  # noqa: E402

MEGATRON = "0.16.1"

# recipe, mcore-bridge, options, the like-named trace or name -> mechanism of what is wrong
CASES = {
    "torch-tp-right": ("torch_tp.py:right", None, ["--real"], {}),
    "torch-tp-unreduced": ("torch_tp.py:unreduced", None, ["--real"], "torch-tp-unreduced"),
    "torch-tp-left-partial": ("torch_tp.py:left_partial", None, ["--real"], "torch-tp-left-partial"),
    "torch-tp-plain-norm": ("torch_tp.py:plain_norm", None, ["--real"], "torch-tp-plain-norm"),
    "torch-tp-summed-twice": ("torch_tp.py:summed_twice", None, ["--real"], "torch-tp-summed-twice"),
    "gpt-right": ("megatron_gpt.py:right", None, [], {}),
    "gpt-sp-off-right": ("megatron_gpt.py:without_sequence_parallel", None, [], {}),
    "gpt-norm-flag-missing": ("megatron_gpt.py:norm_flag_missing", None, [], "norm-flag-missing-bug"),
    "gpt-averaged-final-norm": ("megatron_gpt.py:averaged_final_norm", None, [], "averaged-final-norm-bug"),
    "lora-replica-bug": ("bridge_lora.py:replica", "1.5.2", [], "lora-replica-bug"),
    "lora-replica-fixed": ("bridge_lora.py:replica", "1.6.5", [], "lora-replica-fixed"),
    "lora-replica-averaged": ("bridge_lora.py:replica_averaged", "1.6.5", [], "lora-replica-averaged-bug"),
    "gdn-gamma-flagged": ("bridge_gdn.py:gamma_flagged", "1.6.5", [], "gdn-gamma-tp2-bug"),
    "gdn-gamma-cleared": ("bridge_gdn.py:gamma_cleared", "1.6.5", [], "gdn-gamma-tp2-flag-off"),
    "gdn-upstream": ("bridge_gdn.py:upstream", "1.6.5", [], "gdn-upstream-sp-on-tp2"),
    "mla-sp-off": ("megatron_mla.py:without_sequence_parallel", None, [], "mla-te-sp-off-bug"),
    "mla-sp-on": ("megatron_mla.py:with_sequence_parallel", None, [], "mla-te-sp-on-0.16-norm-bug"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sumonce", type=Path, required=True, help="the program, as `./dev build` makes it")
    parser.add_argument("--folder", type=Path, default=packages.FOLDER)
    parser.add_argument("--filter", default="*", help="of names of cases, '*' and '?' allowed")
    options = parser.parse_args()
    if not os.access(options.sumonce, os.X_OK):
        print(f"{options.sumonce}: no program; ./dev build makes build/release/sumonce", file=sys.stderr)
        return 4
    python = packages.environment(options.folder)
    names = [n for n in CASES if fnmatch.fnmatch(n, f"*{options.filter.strip('*')}*")]
    results = [run(name, python, options) for name in names]
    print(f"{results.count(True)} passed, {results.count(False)} failed, 0 skipped")
    return 0 if all(results) and results else 1


def run(name, python, options):
    recipe, bridge, flags, expected = CASES[name]
    traces = options.folder / "traces" / name
    path = [ROOT / "trace" / "python", packages.unpacked(options.folder, "megatron-core", MEGATRON)]
    path += [packages.unpacked(options.folder, "mcore-bridge", bridge)] if bridge else []
    command = [python, "-W", "ignore", "-m", "sumonce_trace", RECIPES / recipe, "--tp", "2,4", "--out", traces, "--force"]
    start = time.monotonic()
    traced = subprocess.run([*command, *flags], env=os.environ | {"PYTHONPATH": ":".join(map(str, path)), "OMP_NUM_THREADS": "1"},
                            capture_output=True, text=True)
    seconds = time.monotonic() - start
    if traced.returncode:
        print(f"{name}: not traced\n{traced.stderr}")
        return False
    proved = subprocess.run([options.sumonce, "prove", "--trace", traces, "--format", "json"], capture_output=True, text=True)
    found, right = wrong_in(json.loads(proved.stdout))
    wanted = expected if isinstance(expected, dict) else wrong_in_expected(expected)
    good = agrees(found, wanted)
    print(f"{name}: traced in {seconds:.1f} s, {right} right" + "".join(f", {n} {m}" for m, n in counted(found).items())
          + ("" if good else f"\n  expected {wanted}\n  found {found}"))
    return good


def wrong_in(report):
    """name -> mechanism or outcome of each parameter that is not right; how many are."""
    scenario = report["scenarios"][0]
    found = {}
    for finding in scenario["findings"]:
        said = finding["mechanism"] if finding["mechanism"] not in ("", "NONE") else finding["outcome"]
        found |= {param: said for param in (finding["param"], *finding["affected"])}
    return found, scenario["params_right"]


def wrong_in_expected(case):
    parameters = json.loads((ROOT / "tests" / "data" / "traces" / case / "expected.json").read_text())["parameters"]
    return {name: p["verdict"] for name, p in parameters.items() if p["verdict"] != "RIGHT"}


def agrees(found, wanted):
    """Where the prototype made no statement, MIXED_USE or UPSTREAM is a better answer."""
    named = ("NO_STATEMENT", "MIXED_USE", "UPSTREAM")
    return found.keys() == wanted.keys() and all(
        found[n] == wanted[n] or (wanted[n] in named and found[n] in named) for n in wanted)


def counted(found):
    return {m: list(found.values()).count(m) for m in sorted(set(found.values()))}


if __name__ == "__main__":
    sys.exit(main())
