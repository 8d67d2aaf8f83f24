"""The PyTorch hook's own test, under gloo; needs PyTorch and safetensors, and no framework. Exit code 77 (skipped) without them.

    python3 tests/peers/capture/hook_test.py"""
import contextlib
import io
import json
import sys
import tempfile
import types
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOOKS = HERE.parents[2] / "capture"


class Files(unittest.TestCase):
    def test_both_hooks_end_with_the_same_part(self):
        ends = [(HOOKS / path).read_text().partition("# ---- From here on the same")[2]
                for path in ("megatron/sumonce_capture.py", "torch/sumonce_capture_torch.py")]
        self.assertGreater(len(ends[0]), 1000)
        self.assertEqual(*ends)


try:
    import torch
    from safetensors.torch import load_file, safe_open
    sys.path[:0] = [str(HOOKS / "torch"), str(HERE)]
    import sumonce_capture_torch
    import torch_jobs
    from sumonce_capture_torch import CaptureError
    SKIPPED = None
except ImportError as error:
    SKIPPED = f"{error}; pip install torch numpy safetensors"


def captured(case, **changes):
    """Runs a case of torch_jobs. Each rank's tensors of the first captured step and its metadata."""
    out = Path(tempfile.mkdtemp()) / "capture"
    torch_jobs.made(case, out, **changes)
    paths = sorted(out.glob("step-0001/rank-*.safetensors"))
    return [load_file(p) for p in paths], [metadata(p) for p in paths]


def metadata(path):
    with safe_open(path, "pt") as file:
        return {k: json.loads(v) if v[:1] in '{["0123456789n' else v for k, v in file.metadata().items()}


def names(tensors, kind):
    return sorted(k.partition("/")[2] for k in tensors if k.startswith(kind + "/"))


@unittest.skipIf(SKIPPED, SKIPPED)
class DataParallel(unittest.TestCase):
    def test_what_a_rank_contributes_is_its_own_and_what_it_has_is_the_mean(self):
        ranks, about = captured("ddp-accumulation-right")
        self.assertEqual(names(ranks[0], "contribution"), sorted(about[0]["params"]))
        for name in names(ranks[0], "contribution"):
            own = [r[f"contribution/{name}"] for r in ranks]
            self.assertFalse(torch.equal(*own), name)
            for rank in ranks:
                torch.testing.assert_close(rank[f"finalized/{name}"], sum(own) / 2)
                torch.testing.assert_close(rank[f"contribution@0/{name}"] + rank[f"contribution@1/{name}"],
                                           rank[f"contribution/{name}"])

    def test_a_microbatch_that_is_never_reduced_shows(self):
        ranks, _ = captured("ddp-no-sync-on-last-bug")
        for name in names(ranks[0], "contribution"):
            mean = sum(r[f"contribution@0/{name}"] for r in ranks) / 2
            for rank in ranks:
                torch.testing.assert_close(rank[f"finalized/{name}"], mean + rank[f"contribution@1/{name}"])

    def test_what_a_rank_did_not_use_it_contributes_nothing_to(self):
        ranks, _ = captured("ddp-unused-parameters")
        for rank, tensors in enumerate(ranks):
            self.assertEqual(names(tensors, "contribution"), names(tensors, "finalized"))
            self.assertEqual(names(tensors, "contribution"), names(tensors, "weight"))
            unused = f"layers.{1 - rank}.weight"
            self.assertFalse(tensors[f"contribution/{unused}"].any())
            torch.testing.assert_close(tensors[f"finalized/{unused}"], ranks[1 - rank][f"contribution/{unused}"] / 2)

    def test_gradients_are_those_before_clipping_and_the_norm_is_theirs(self):
        ranks, about = captured("ddp-accumulation-right", clip=1e-3)
        norm = sum(ranks[0][f"finalized/{n}"].square().sum() for n in names(ranks[0], "finalized")).sqrt()
        self.assertAlmostEqual(about[0]["grad_norm"], float(norm), places=5)
        self.assertGreater(about[0]["grad_norm"], 0.1)
        self.assertEqual(about[0]["clip_grad"], 1e-3)

    def test_says_where_it_stands(self):
        _, about = captured("ddp-accumulation-right")
        self.assertEqual([about[1][k] for k in ("format", "version", "step", "rank", "world_size")], ["sumonce-capture", 1, 1, 1, 2])
        self.assertEqual(about[1]["mesh"]["dp"], {"size": 2, "coordinate": 1})
        self.assertEqual(about[1]["groups"], {"dp": [[0, 1]]})
        self.assertEqual(about[1]["ddp"]["gradient_scaling_factor"], 0.5)
        self.assertEqual(about[1]["modules"]["fc1"], {"class": "torch.nn.modules.linear.Linear"})
        self.assertIsNone(about[1]["layout"])


@unittest.skipIf(SKIPPED, SKIPPED)
class FullySharded(unittest.TestCase):
    def check(self, case):
        ranks, about = captured(case)
        for name in names(ranks[0], "contribution"):
            owners = []
            for rank, said in zip(ranks, about):
                group = next(g for g in said["groups"]["dp"] if said["rank"] in g)
                mean = sum(ranks[r][f"contribution/{name}"] for r in group) / len(group)
                low, high = said["owned"].get(name, (0, 0))
                owners.append((said["mesh"]["tp"]["coordinate"], low, high))
                torch.testing.assert_close(rank[f"finalized/{name}"].flatten()[low:high], mean.flatten()[low:high])
                self.assertEqual(list(rank[f"weight/{name}"].shape), said["params"][name]["shape"])
            for tp in {o[0] for o in owners}:  # together they own every element
                ranges, at = sorted({o[1:] for o in owners if o[0] == tp and o[1] < o[2]}), 0
                for low, high in ranges:
                    self.assertEqual(low, at, (name, ranges))
                    at = high
                self.assertEqual(at, mean.numel(), name)
        return about

    def test_each_rank_owns_its_rows(self):
        self.assertEqual(self.check("fsdp-dp3")[0]["mesh"]["dp"]["size"], 3)

    def test_with_replicas_of_shards(self):
        self.assertEqual(self.check("fsdp-dp2-replicated-2")[0]["groups"], {"dp": [[0, 1, 2, 3]]})

    def test_what_fsdp_ignores_is_whole_on_every_rank(self):
        ranks, about = captured("fsdp-dp3", ignored=True, microbatches=1, clip=None)
        for rank, said in zip(ranks, about):
            self.assertEqual(said["owned"]["scale"], [0, 5])
            torch.testing.assert_close(rank["finalized/scale"], rank["contribution/scale"])

    def test_over_tensor_parallel_layers(self):
        about = self.check("fsdp-dp2-tp2")
        self.assertEqual(about[0]["groups"], {"dp": [[0, 2], [1, 3]], "tp": [[0, 1], [2, 3]]})
        self.assertEqual(about[0]["layout"]["layers.0.2.weight"], {"dim": 1})
        self.assertNotIn("layers.0.2.bias", about[0]["layout"])


@unittest.skipIf(SKIPPED, SKIPPED)
class TensorParallel(unittest.TestCase):
    def test_a_partial_gradient_is_captured_before_it_is_summed(self):
        ranks, about = captured("dtensor-tp2-right")
        name = "0.lora_B.weight"
        self.assertEqual(about[0]["placements"][name], {"param": "(Replicate(),)", "grad": "(Partial(sum),)"})
        own = [r[f"contribution/{name}"] for r in ranks]
        self.assertFalse(torch.equal(*own))
        torch.testing.assert_close(ranks[0][f"finalized/{name}"], sum(own))
        self.assertEqual(about[0]["layout"]["0.w2.weight"], {"dim": 1})

    def test_one_that_pytorch_takes_for_replicated_stays_the_ranks_own(self):
        ranks, about = captured("dtensor-tp2-adapter-unreduced-bug")
        name = "0.lora_B.weight"
        self.assertEqual(about[0]["placements"][name]["grad"], "(Replicate(),)")
        self.assertFalse(torch.equal(*(r[f"finalized/{name}"] for r in ranks)))


@unittest.skipIf(SKIPPED, SKIPPED)
class InAJob(unittest.TestCase):
    """One process, no wrapper."""

    def setUp(self):
        torch.manual_seed(1)
        self.out = Path(tempfile.mkdtemp()) / "capture"
        self.model = torch_jobs.set_weights(torch_jobs.Net())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def watch(self, **options):
        return sumonce_capture_torch.watch(self.model, self.optimizer, self.out, **options)

    def train(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.arange(8)[None]).square().sum().backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    def files(self):
        return sorted(str(p.relative_to(self.out)) for p in self.out.rglob("*") if p.is_file())

    def test_only_the_steps_and_parameters_that_were_asked_for(self):
        self.watch(steps=[1], every=3, params=["fc1.*", "head*"], weights=False)
        self.train(4)
        self.assertEqual(self.files(), [f"step-{s:04d}/rank-00000.safetensors" for s in (1, 3)])
        tensors = load_file(self.out / "step-0003/rank-00000.safetensors")
        self.assertEqual(sorted(tensors), [f"{k}/{n}" for k in ("contribution", "finalized")
                                           for n in ("fc1.bias", "fc1.weight", "head.weight")])

    def test_ranks_of_one_run_say_so_and_runs_differ(self):
        runs = [{about["run"] for about in captured("ddp-accumulation-right")[1]} for _ in range(2)]
        self.assertEqual([len(run) for run in runs], [1, 1])
        self.assertNotEqual(*runs)

    def test_modules_stand_in_the_first_file_only(self):
        self.watch(steps=[1, 2])
        self.train(2)
        self.assertEqual(["modules" in metadata(self.out / f) for f in self.files()], [True, False])

    def test_says_only_what_it_knows_and_what_json_has_words_for(self):
        self.model.config = types.SimpleNamespace(limit=float("inf"), layers=2, name="net", inner=object())
        self.watch()
        self.model(torch.arange(8)[None]).square().sum().backward()
        self.optimizer.step()  # without clipping there is no norm
        about = metadata(self.out / "step-0001/rank-00000.safetensors")
        self.assertEqual(about["config"], {"limit": "inf", "layers": 2, "name": "net"})
        self.assertFalse({"grad_norm", "clip_grad"} & about.keys())
        self.assertEqual({k for k, v in about.items() if v is None}, {"layout", "placements", "tied", "owned"})

    def test_training_is_the_same_bit_for_bit(self):
        self.watch(steps=[1, 2])
        self.train(3)
        with_hook = self.model.state_dict()
        self.setUp()
        self.train(3)
        for name, value in self.model.state_dict().items():
            self.assertTrue(torch.equal(value, with_hook[name]), name)

    def test_a_manifest_has_no_tensors_and_leaves_nothing_in_the_job(self):
        clip = torch.nn.utils.clip_grad_norm_
        self.watch(manifest_only=True)
        self.assertIsNot(torch.nn.utils.clip_grad_norm_, clip)
        self.train(2)
        self.assertEqual(self.files(), ["step-0001/rank-00000.safetensors"])
        self.assertEqual(load_file(self.out / self.files()[0]), {})
        self.assertEqual(metadata(self.out / self.files()[0])["params"]["fc1.weight"]["shape"], [32, 16])
        self.assertIs(torch.nn.utils.clip_grad_norm_, clip)
        self.assertFalse(self.optimizer._optimizer_step_pre_hooks or self.optimizer._optimizer_step_post_hooks)
        self.assertFalse(any(m._forward_pre_hooks for m in self.model.modules()))
        self.assertFalse(any(p._backward_hooks for p in self.model.parameters()))

    def test_nothing_is_overwritten_unasked(self):
        self.watch()
        self.train(1)
        with self.assertRaisesRegex(CaptureError, r"holds a capture \(step-0001/rank-00000.safetensors\); .*force=True"):
            self.watch()
        self.watch(steps=[2], force=True)
        self.train(2)
        self.assertEqual(self.files(), ["step-0002/rank-00000.safetensors"])

    def test_what_cannot_be_meant_is_refused(self):
        with self.assertRaisesRegex(CaptureError, r"no parameter's name matches 'fc9\*'; there are embedding.weight, "):
            self.watch(params="fc9*")
        with self.assertRaisesRegex(CaptureError, "steps are counted from 1|which are counted from 1"):
            self.watch(steps=[0])

    def test_a_file_that_cannot_be_written_ends_the_capture_and_not_the_training(self):
        self.watch(steps=[1, 2])
        self.out.mkdir()
        (self.out / "step-0001").write_text("in the way")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.train(3)
        self.assertIn("could not be written", said.getvalue())
        self.assertIn("Nothing more is captured", said.getvalue())
        self.assertEqual(self.files(), ["step-0001"])


if __name__ == "__main__":
    passed = unittest.main(exit=False).result.wasSuccessful()
    if SKIPPED:
        print(f"hook_test: skipped: {SKIPPED}", file=sys.stderr)
    sys.exit(1 if not passed else 77 if SKIPPED else 0)
