"""Compares captures that a hook wrote with those of the same runs that were made without it: names, tensors, metadata.

    python capture_check.py OURS THEIRS CASE...

Prints a line a case; exit code 1 where something differs."""
import json
import sys
from pathlib import Path

from safetensors import safe_open

# Compared in their own ways, or not known to a hook.
GENERATED = {"layout", "tied", "case", "loss_weights", "ddp", "optimizer", "tokens", "config", "groups", "framework", "placements", "owned"}


def main():
    ours, theirs, *cases = sys.argv[1:]
    failed = 0
    for case in cases:
        found, count, worst = compare(Path(ours) / case, Path(theirs) / case)
        print(f"{case}: {count} tensors, greatest difference {worst:.1e} of the norm" + "".join(f"\n  {f}" for f in found[:12]))
        failed += bool(found)
    sys.exit(1 if failed else 0)


def compare(ours, theirs):
    """What differs, how many tensors are the same, the greatest relative difference in the norm."""
    paths = sorted(p.relative_to(theirs) for p in theirs.glob("step-*/rank-*.safetensors"))
    kept = {p.parts[0] for p in paths}  # tests/data keeps the first steps only
    mine = sorted(q for p in ours.glob("step-*/rank-*.safetensors") if (q := p.relative_to(ours)).parts[0] in kept)
    found, count, worst = ([] if mine == paths else [f"files {list(map(str, mine))}, not {list(map(str, paths))}"]), 0, 0.0
    runs = {run_of(ours / path) for path in mine}
    found += [] if len(runs) == 1 and all(runs) else [f"run: {runs}, expected one name for all ranks and steps"]
    for path in paths if mine == paths else ():
        with safe_open(ours / path, "pt") as one, safe_open(theirs / path, "pt") as other:
            found += [f"{path}: {f}" for f in about(meta(one), meta(other))]
            # Theirs hold a stage between and few weights; only ours the whole set.
            names = {n for n in other.keys() if not n.startswith(("finalized@dp/", "weight_after/"))}
            found += [f"{path}: no {n}" for n in sorted(names - set(one.keys()))]
            found += [f"{path}: {n} is too much" for n in sorted(set(one.keys()) - names) if not n.startswith("weight/")]
            for name in names & set(one.keys()):
                a, b = one.get_tensor(name).double(), other.get_tensor(name).double()
                low, high = owned(meta(other), name, a.numel())
                a, b = a.flatten()[low:high], b.flatten()[low:high]
                off = float((a - b).norm() / b.norm().clamp(min=1e-30)) if (a != b).any() else 0.0
                worst, count = max(worst, off), count + 1
                if a.shape != b.shape or off > 2e-4:
                    found.append(f"{path}: {name} differs by {off:.1e} of the norm")
    return found, count, worst


def owned(metadata, name, size):
    """Elements that the distributed optimizer leaves unreduced are nobody's, and differ by chance of memory."""
    ranges, (kind, _, parameter) = metadata.get("owned"), name.partition("/")
    return (0, size) if ranges is None or kind != "finalized" else ranges.get(parameter, (0, 0))


def run_of(path):
    with safe_open(path, "pt") as file:
        return file.metadata().get("run")


def meta(file):
    def parsed(value):
        try:
            return json.loads(value, parse_constant=lambda word: sys.exit(f"{word} is no JSON"))
        except ValueError:
            return value
    return {k: parsed(v) for k, v in file.metadata().items()}


def about(one, other):
    """What the metadata say differently, of what both know."""
    # The number of microbatches is known from Megatron's calculator of them, which these jobs do without.
    found = [f"no {key}" for key in other.keys() - one.keys() - {"loss_weights"}]
    for key in other.keys() & one.keys() - GENERATED - {"grad_norm", "modules", "params"}:
        found += [] if one[key] == other[key] else [f"{key}: {one[key]}, not {other[key]}"]
    for key in ("params", "modules"):
        mine, theirs = one.get(key) or {}, other.get(key) or {}
        found += [f"{key}: {n}" for n in sorted(mine.keys() ^ theirs.keys())]
        found += [f"{key}: {n}: {mine[n]}, not {theirs[n]}" for n in sorted(mine.keys() & theirs.keys()) if mine[n] != theirs[n]]
    for key in ("groups", "config", "ddp"):
        mine, theirs = one.get(key) or {}, other.get(key) or {}
        # Versions have not all the same fields of a configuration; wrappers are called by their import or by their file.
        found += [f"{key}: {n}: {mine.get(n)}, not {v}" for n, v in theirs.items()
                  if mine.get(n) != v and n != "wrapper" and (n in mine or key != "config")]
    for key in ("owned", "placements", "layout", "tied"):
        found += [] if one.get(key) in (None, other.get(key)) else [f"{key}: {one[key]}, not {other.get(key)}"]
    if (other.get("tokens") or {}).get("global") is not None and one["tokens"]["global"] != other["tokens"]["global"]:
        found.append(f"tokens: {one['tokens']}, not {other['tokens']}")
    if other.get("grad_norm") is not None and abs(one["grad_norm"] - other["grad_norm"]) > 1e-5 * other["grad_norm"]:
        found.append(f"grad_norm: {one['grad_norm']}, not {other['grad_norm']}")
    return found


if __name__ == "__main__":
    main()
