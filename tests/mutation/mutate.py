"""Deletes each rule, collective, mark and declaration of the source, one at a time, and says which deletions no test notices.

    python3 tests/mutation/mutate.py --list                     # what would be deleted
    python3 tests/mutation/mutate.py --work /tmp/mutation       # all of them; again: goes on where it stopped
    python3 tests/mutation/mutate.py --work ... --only 'rule|.*sum' --rebuild

Not part of `./dev test`. It works on a copy of the tree below --work, never on the tree itself. By default the copy gets a switch
at each place (mutants.py), is built once, and every mutant is one environment variable away; with --rebuild each is really cut
out of the copy's text, the copy rebuilt incrementally, and restored. Tests run until the first that fails: those of the mutant's
folder, then the wider ones. The journal (--work/journal.jsonl) keeps each result; a changed tree begins a new one. Exit code 0: no
survivor, 1: survivors, 2: some were not run, 4: the unchanged copy does not build or pass."""
import argparse
import collections
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import mutants

ROOT = Path(__file__).resolve().parents[2]
CONFIGURE = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON", "-DSUMONCE_BUILD_BENCH=OFF", "-DSUMONCE_WITH_MPI=OFF"]
# Programs of the folder's own tests and of the wider ones, in the order in which they are asked.
NEAR = {"sim": ["sim"], "layers": ["layers"], "spmd": ["spmd"], "trace": ["trace"]}
WIDE = {"sim": ["scenarios", "system", "verify", "report"], "layers": ["scenarios", "sim", "system", "verify"],
        "spmd": ["layers", "scenarios", "sim", "system", "verify"], "trace": ["cli"]}
LIMIT_S = 600  # of one program


def main():
    options = arguments()
    work = options.work.resolve()
    found = [m for m in mutants.find(ROOT) if re.search(options.only, m.key)]
    if options.list:
        for m in found:
            print(f"{m.number:4} {m.kind:16} {m.file}:{m.line}  {m.text}")
        print(len(found), dict(collections.Counter(m.kind for m in found)))
        return 0
    source, build = work / "source", work / "build"
    copy_tree(source, [] if options.rebuild else found)
    folders = {m.file.split("/")[0] for m in found}
    programs = sorted({p for plan in (NEAR, WIDE) for folder in folders for p in plan[folder]})
    if not run(options.under + ["bash", "-ec", build_script(source, build, programs, options.jobs)], work / "build.log"):
        print(f"the copy does not build: {work}/build.log", file=sys.stderr)
        return 4
    journal = Journal(work / "journal.jsonl", digest_of(found, options.rebuild))
    programs_pass = journal.get("unchanged") or passing(options, work, build, source, programs)
    journal.put("unchanged", programs_pass)
    print("of the unchanged copy pass:", *programs_pass, flush=True)
    began = time.monotonic()
    for mutant in found:
        if journal.get(mutant.key):
            continue
        if options.seconds and time.monotonic() - began > options.seconds:
            break
        result = judge(mutant, options, work, source, build, programs_pass)
        journal.put(mutant.key, result)
        print(f"{mutant.number:4} {result['result']:9} {result['by']:12} {result['seconds']:5.0f} s  {mutant.kind}  "
              f"{mutant.file}:{mutant.line}  {mutant.text[:100]}", flush=True)
    return summary(found, journal)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("mutation"), help="copy, build and journal; default ./mutation")
    parser.add_argument("--list", action="store_true", help="show what would be deleted, and build nothing")
    parser.add_argument("--only", default="", help="a regular expression over kind|file|text")
    parser.add_argument("--rebuild", action="store_true", help="cut each out of the text and rebuild, instead of one build with switches")
    parser.add_argument("--seconds", type=float, default=0, help="begin no mutant after so long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--under", type=shlex.split, default=[], help="a command that runs each build and each mutant's tests")
    return parser.parse_args()


def copy_tree(source, switched):
    """Tracked and new files; what has not changed keeps its time, so that little is rebuilt."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True).stdout.decode().split("\0")
    by_file = collections.defaultdict(list)
    for mutant in switched:
        by_file[mutant.file].append(mutant)
    wanted = {mutants.SWITCH: mutants.SWITCH_TEXT.encode()}
    for name in listed:
        if name and (ROOT / name).is_file():
            wanted[name] = (ROOT / name).read_bytes()
            if name in by_file:
                wanted[name] = mutants.with_switches(wanted[name].decode(), by_file[name]).encode()
    for name, content in wanted.items():
        put(source / name, content, (ROOT / name).stat().st_mode if (ROOT / name).exists() else None)
    for path in [p for p in source.rglob("*") if p.is_file() and str(p.relative_to(source)) not in wanted]:
        path.unlink()


def put(path, content, mode=None):
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if mode is not None:
        path.chmod(mode)


def targets(programs):
    return ["sumonce", *(f"sumonce_{p}_test" for p in programs if p != "scenarios")]


def build_script(source, build, programs, jobs):
    configure = "" if (build / "build.ninja").exists() else shlex.join(["cmake", "-S", str(source), "-B", str(build), *CONFIGURE]) + " && "
    return configure + shlex.join(["ninja", "-j", str(jobs), "-C", str(build), *targets(programs)])


def command_of(program, source, build):
    if program == "scenarios":
        return f"cd {shlex.quote(str(source))} && {shlex.quote(str(build / 'sumonce'))} run scenarios --format console"
    path = next(build.rglob(f"sumonce_{program}_test"))
    return f"cd {shlex.quote(str(build))} && {shlex.quote(str(path))} --gtest_fail_fast --gtest_brief=1"


def tests_script(programs, source, build):
    """Says which program fails first, on the last line."""
    lines = [f"( {command_of(p, source, build)} ) </dev/null || {{ echo 'failed: {p}' $?; exit 1; }}" for p in programs]
    return "\n".join(f"timeout {LIMIT_S} bash -c {shlex.quote(line)} || exit 1" for line in lines)


def run(command, log, **environment):
    with open(log, "w") as out:
        return subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | environment).returncode == 0


def passing(options, work, build, source, programs):
    """Those programs that pass on the unchanged copy: the others can judge nothing."""
    passed = []
    for program in programs:
        if run(options.under + ["bash", "-c", tests_script([program], source, build)], work / f"unchanged-{program}.log"):
            passed.append(program)
        else:
            print(f"{program} fails on the unchanged copy, and is left out: {work}/unchanged-{program}.log", file=sys.stderr)
    if not passed:
        sys.exit(4)
    return passed


def judge(mutant, options, work, source, build, programs_pass):
    folder = mutant.file.split("/")[0]
    plan = [p for p in NEAR[folder] + WIDE[folder] if p in programs_pass]
    script, began, log = tests_script(plan, source, build), time.monotonic(), work / "mutant.log"
    if not options.rebuild:
        passed = run(options.under + ["bash", "-c", script], log, SUMONCE_MUTANT=str(mutant.number))
        return verdict(passed, log, began)
    path = source / mutant.file
    whole = path.read_text()
    try:
        cut = mutants.with_switches(whole, [mutant]).replace(f"MutantIs({mutant.number})", "true")
        path.write_text(cut)
        built = run(options.under + ["bash", "-ec", build_script(source, build, plan, options.jobs)], work / "mutant-build.log")
        if not built:
            return {"result": "not built", "by": "", "seconds": time.monotonic() - began}
        return verdict(run(options.under + ["bash", "-c", script], log), log, began)
    finally:
        path.write_text(whole)


def verdict(passed, log, began):
    seconds = time.monotonic() - began
    if passed:
        return {"result": "survived", "by": "", "seconds": seconds}
    text = log.read_text(errors="replace")
    failed = re.findall(r"^failed: (\w+) \d+$", text, re.M)
    test = re.findall(r"^\[  FAILED  \] (\S+)", text, re.M)
    return {"result": "killed", "by": failed[-1] if failed else "time limit", "test": test[0].rstrip(",") if test else "", "seconds": seconds}


def digest_of(found, rebuild):
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-s", "--", "*.cc", "*.h"], capture_output=True, check=True).stdout
    return hashlib.sha256(names + str(rebuild).encode()).hexdigest()[:16]


class Journal:
    """Results by mutant, a line each."""

    def __init__(self, path, tree):
        self._path, self._results = path, {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._results[entry["key"]] = entry["result"]
        if self.get("tree") not in (None, tree):
            print("the tree has changed since this journal began: survivors are asked again, kills are kept", file=sys.stderr)
            self._results = {k: r for k, r in self._results.items() if isinstance(r, dict) and r["result"] == "killed"}
        self._path.write_text("".join(self._line(k, r) for k, r in self._results.items()))
        self.put("tree", tree)

    @staticmethod
    def _line(key, result):
        return json.dumps({"key": key, "result": result}) + "\n"

    def get(self, key):
        return self._results.get(key)

    def put(self, key, result):
        self._results[key] = result
        with open(self._path, "a") as out:
            out.write(self._line(key, result))


def summary(found, journal):
    counts, survivors = collections.Counter(), []
    for mutant in found:
        result = (journal.get(mutant.key) or {"result": "not run"})["result"]
        counts[mutant.kind, result] += 1
        if result == "survived":
            survivors.append(mutant)
    results = ["killed", "survived", "not built", "not run"]
    print(f"\n{'':18}" + "".join(f"{r:>10}" for r in results))
    for kind in dict.fromkeys(m.kind for m in found):
        print(f"{kind:18}" + "".join(f"{counts[kind, r]:10}" for r in results))
    print(f"{'all':18}" + "".join(f"{sum(counts[k, r] for k in {m.kind for m in found}):10}" for r in results))
    for m in survivors:
        print(f"survived: {m.kind}  {m.file}:{m.line}  {m.text}")
    return 2 if any(result == "not run" for _, result in counts) else 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
