"""Compares what a version's finalizer did, as finalizer_job.py captured it, with what sumonce's preset of that version says and
with docs/THEORY.md "Finalizers" written out once more below, on the same contributions."""
import collections
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file


class Step:
    """A captured step: each rank's tensors by kind, what its files say."""

    def __init__(self, folder):
        paths = sorted(folder.glob("step-*/rank-*.safetensors"))
        self.ranks = [tensors_of(p) for p in paths]
        self.about = [metadata_of(p) for p in paths]
        self.config, self.groups = self.about[0]["config"], self.about[0]["groups"]
        self.minor = int(self.about[0]["framework"]["megatron-core"].split(".")[1])
        self.tokens = [a["tokens"]["local"] for a in self.about]

    def group(self, name, rank):
        return next(g for g in self.groups[name] if rank in g)

    def marks(self, rank, name):
        return self.about[rank]["params"][name]["marks"]

    def owned(self, rank, name):
        """The flat range of the elements that the data-parallel step reduces on this rank."""
        ranges, size = self.about[rank]["owned"], self.ranks[rank]["finalized"][name].size
        return (0, size) if ranges is None else ranges.get(name, (0, 0))

    def names(self, rank):
        return [n for n, p in self.about[rank]["params"].items() if p["requires_grad"]]


def tensors_of(path):
    """kind -> name -> float64 array. numpy has no bfloat16, so torch reads those."""
    found = collections.defaultdict(dict)
    with safe_open(path, "pt") as file:
        for key in file.keys():
            kind, _, name = key.partition("/")
            found[kind][name] = file.get_tensor(key).double().numpy()
    return found


def metadata_of(path):
    with safe_open(path, "np") as file:
        return {k: json.loads(v) if v[:1] in '{["n' or k in ("step", "rank", "world_size") else v
                for k, v in file.metadata().items()}


# ---- the theory


def by_theory(step, contributions):
    """contributions: of each rank, name -> array. What each holds after the finalizer."""
    world = range(len(contributions))
    held = [dict(c) for c in contributions]

    def reduce(group_of, claims, scale=lambda rank: 1.0):
        before = [dict(h) for h in held]
        for rank in world:
            for name in before[rank]:
                if claims(rank, name):
                    peers = group_of(rank, name)
                    held[rank][name] = scale(rank) * sum(before[peer][name] for peer in peers)

    per_token = step.config["calculate_per_token_loss"]
    factor = 1.0 if per_token else 1.0 / len(step.group("dp_cp", 0))
    for is_expert in (False, True):
        reduce(lambda rank, name: step.group("edp" if is_expert else "dp_cp", rank),
               lambda rank, name: (step.marks(rank, name).get("allreduce", True) is False) == is_expert, lambda rank: factor)
    for rank in world:
        for name in contributions[rank]:
            keep_unreduced(step, rank, name, held[rank], factor * contributions[rank][name])
    if step.config["has_cond_embedder"] and len(step.group("pp", 0)) > 1:
        sum_conditional(step, held)
    averaged = {rank: [n for n in held[rank] if tp_action(step, rank, n) == "avg"] for rank in world}
    summed = {rank: [n for n in held[rank] if tp_action(step, rank, n) == "sum"] for rank in world}
    reduce(lambda rank, name: step.group("tp", rank), lambda rank, name: name in summed[rank])
    reduce(lambda rank, name: step.group("tp", rank), lambda rank, name: name in averaged[rank],
           lambda rank: 1.0 / len(step.group("tp", rank)))
    sum_tied(step, held)
    if per_token:
        divide_by_tokens(step, held)
    return held


def keep_unreduced(step, rank, name, held, scaled):
    """A reduce-scatter leaves the elements that other ranks own as they were, but for the factor. Behind an experts' group that
    spans tp, tp peers own different ones, and a sum over tp then mixes what was reduced with what was not."""
    low, high = step.owned(rank, name)
    reduced, held[name] = held[name], scaled
    held[name].flat[low:high] = reduced.flat[low:high]


def tp_action(step, rank, name):
    """What step 4 does over tp: "sum", "avg" or None."""
    marks, sp, qk = step.marks(rank, name), step.config["sequence_parallel"], step.config["qk_layernorm"]
    marked, named = marks.get("sequence_parallel", False), "q_layernorm" in name or "k_layernorm" in name
    if step.minor <= 12:
        return "sum" if (sp or qk) and (marked or named) else None
    if marks.get("average_gradients_across_tp_domain", False):
        return "avg"
    return "sum" if (sp and marked) or (qk and named) else None


def sum_conditional(step, held):
    """Parameters marked pipeline_parallel: those of one name in all chunks and stages end with their sum."""
    names = [n for n in held[0] if step.marks(0, n).get("pipeline_parallel")]
    totals = [sum(held[peer][n] for peer in step.group("pp", rank) for n in names) for rank in range(len(held))]
    for rank, total in enumerate(totals):
        held[rank].update(dict.fromkeys(names, total))


def sum_tied(step, held):
    copies = [[n for n in h if n in ("embedding.word_embeddings.weight", "output_layer.weight")] for h in held]
    totals = {}
    for rank, names in enumerate(copies):
        peers = [p for p in step.group("pp", rank) if copies[p]]
        totals[rank] = sum(held[p][copies[p][0]] for p in peers) if names and len(peers) > 1 else None
    for rank, total in totals.items():
        if total is not None:
            held[rank][copies[rank][0]] = total


def divide_by_tokens(step, held):
    """The count is that of the last stage, summed over dp; up to 0.12 without cp."""
    for rank in range(len(held)):
        last = step.group("pp", rank)[-1]
        count = sum(step.tokens[step.group("pp", peer)[-1]] for peer in step.group("dp" if step.minor <= 12 else "dp_cp", last))
        for name in held[rank]:
            held[rank][name] = held[rank][name] / count


# ---- the preset


def by_preset(step, contributions, actions):
    """actions: name -> the claims of each step, as preset_actions prints them."""
    held = [dict(c) for c in contributions]
    count = step.tokens[0] and sum(step.tokens[peer] for peer in step.group("dp", 0))
    for order in ("data_parallel", "tensor_parallel", "per_token"):
        before = [dict(h) for h in held]
        for rank, mine in enumerate(held):
            for name in mine:
                for action in (a for a in actions[name] if a["step"] == order):
                    peers = step.group(action["group"], rank) if action["group"] else [rank]
                    mine[name] = sum(before[p][name] for p in peers)
                    divisor = action["group"] if action["map"] == "avg" else action["divided_by"]
                    if divisor:
                        mine[name] = mine[name] / len(step.group(divisor, rank))
                    if order == "data_parallel":
                        factor = 1 / len(step.group(action["divided_by"], rank)) if action["divided_by"] else 1.0
                        keep_unreduced(step, rank, name, mine, factor * before[rank][name])
                    if action["times_inverse_tokens"]:
                        mine[name] = mine[name] / count
    return held


class Presets:
    def __init__(self, program):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def actions(self, step):
        request = {"preset": f"megatron_core_0_{step.minor}", "config": step.config, "params": step.about[0]["params"]}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


# ---- the comparison


def differences(step, held, kind):
    """(name, rank, greatest difference over the greatest entry) of each gradient that is not what `held` says."""
    found = []
    for rank, tensors in enumerate(step.ranks):
        for name, real in tensors[kind].items():
            low, high = step.owned(rank, name)
            said, got = held[rank][name].ravel()[low:high], real.ravel()[low:high]
            bound = 2e-2 if step.about[rank]["params"][name]["dtype"] == "bfloat16" else 2e-6
            if low < high and not np.allclose(said, got, rtol=bound, atol=bound * np.abs(said).max()):
                found.append((name, rank, float(np.abs(said - got).max())))
    return found


def main():
    folder, program = Path(sys.argv[1]), sys.argv[2]
    presets, failed = Presets(program), 0
    for mesh in sorted(p for p in folder.iterdir() if p.is_dir()):
        counts = collections.Counter()
        for case in sorted(mesh.iterdir()):
            failed += compare(mesh.name, case, presets, counts)
        print(f"  {mesh.name}: {counts['cases']} cases, {counts['tensors']} tensors as the theory says, {counts['theory']} not; "
              f"{counts['preset tensors']} as the preset says, {counts['preset']} not")
    sys.exit(1 if failed else 0)


def compare(mesh, case, presets, counts):
    step, failed = Step(case), 0
    counts["cases"] += 1
    tensors = sum(len(r["finalized"]) + len(r["probe_finalized"]) for r in step.ranks)
    for before, after in ("contribution", "finalized"), ("probe_contribution", "probe_finalized"):
        contributions = [r[before] for r in step.ranks]
        assert all(c.keys() == r[after].keys() and c.keys() == set(step.names(i))
                   for i, (c, r) in enumerate(zip(contributions, step.ranks))), f"{case}: not every parameter is there"
        wrong = differences(step, by_theory(step, contributions), after)
        failed += report(f"{mesh}/{case.name}: {after} is not as the theory says", step, wrong)
        counts["theory"] += len(wrong)
        if all(step.about[0]["mesh"][axis]["size"] == 1 for axis in ("cp", "pp", "ep")):
            actions = presets.actions(step)
            wrong = differences(step, by_preset(step, contributions, actions), after)
            failed += report(f"{mesh}/{case.name}: {after} is not as the preset says", step, wrong)
            counts["preset"] += len(wrong)
            counts["preset tensors"] += sum(len(r[after]) for r in step.ranks) - len(wrong)
    counts["tensors"] += tensors
    return failed


def report(what, step, wrong):
    """Says how many, and the first of each combination of marks."""
    if wrong:
        print(f"  {what}: {len(wrong)} gradients")
        seen = set()
        for name, rank, size in wrong:
            key = json.dumps(step.marks(rank, name), sort_keys=True), name.split(".", 3)[-1]
            if key not in seen and len(seen) < 6:
                print(f"    rank {rank} {name} {key[0]}: off by {size:.3g}")
            seen.add(key)
    return len(wrong)


if __name__ == "__main__":
    main()
