"""The Megatron hook in a job of one rank, on the real package; real_jobs.py runs it with a version on PYTHONPATH."""
import contextlib
import importlib
import io
import json
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

import no_gpu  # noqa: before Megatron
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.transformer import TransformerConfig
from safetensors.torch import load_file, safe_open

import sumonce_capture
from sumonce_capture import CaptureError

FINALIZER = importlib.import_module("megatron.core.distributed.finalize_model_grads")
ORIGINAL = FINALIZER.finalize_model_grads
STEPS = {kind: vars(kind).get("step") for kind in (MegatronOptimizer, *MegatronOptimizer.__subclasses__())}


class Router(torch.nn.Module):
    """What the finalizer looks for to balance experts."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 3))
        self.register_buffer("expert_bias", torch.zeros(4))
        self.register_buffer("local_tokens_per_expert", torch.tensor([5.0, 1.0, 1.0, 1.0]))


class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.pre_process, self.post_process = config, True, True
        self.share_embeddings_and_output_weights = False
        self.layer, self.router = torch.nn.Linear(3, 5), Router()


class InAJob(unittest.TestCase):
    def setUp(self):
        self.out = Path(tempfile.mkdtemp()) / "capture"
        self.config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=4)
        self.config.moe_router_enable_expert_bias, self.config.moe_router_bias_update_rate = True, 0.125
        self.ddp = DistributedDataParallel(self.config, DistributedDataParallelConfig(), Model(self.config))
        self.router = self.ddp.module.router

    def tearDown(self):
        self.assertIs(FINALIZER.finalize_model_grads, ORIGINAL)
        self.assertEqual({kind: vars(kind).get("step") for kind in STEPS}, STEPS)

    def train(self, steps, finalize=None):
        for step in range(steps):
            self.ddp.zero_grad_buffer()
            sum((p * (i + 1 + step)).sum() for i, p in enumerate(self.ddp.parameters())).backward()
            (finalize or FINALIZER.finalize_model_grads)([self.ddp], None)

    def tensors(self, step=1):
        return load_file(self.out / f"step-{step:04d}" / "rank-00000.safetensors")

    def about(self, step=1):
        with safe_open(self.out / f"step-{step:04d}" / "rank-00000.safetensors", "pt") as file:
            return {k: json.loads(v) if v[:1] in "{[n" else v for k, v in file.metadata().items()}

    def test_only_the_steps_and_parameters_that_were_asked_for(self):
        capture = sumonce_capture.watch(self.out, steps=[1], every=3, params="layer.*", weights=False)
        self.train(4)
        capture.close()
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["step-0001", "step-0003"])
        self.assertEqual(sorted(self.tensors(3)), [f"{k}/layer.{n}" for k in ("contribution", "finalized") for n in ("bias", "weight")])
        self.assertIn("modules", self.about(1))
        self.assertNotIn("modules", self.about(3))

    def test_ends_by_itself_with_the_last_step(self):
        sumonce_capture.watch(self.out, steps=[1, 2])
        self.train(3)  # the third finalizer writes the second step, whose norm nobody has told
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["step-0001", "step-0002"])

    def test_a_manifest_has_no_tensors_and_leaves_nothing_in_the_job(self):
        sumonce_capture.watch(self.out, manifest_only=True)
        self.assertIsNot(FINALIZER.finalize_model_grads, ORIGINAL)
        self.train(2)
        self.assertEqual([str(p.relative_to(self.out)) for p in self.out.rglob("*") if p.is_file()],
                         ["step-0001/rank-00000.safetensors"])
        self.assertEqual(self.tensors(), {})
        self.assertEqual(self.about()["modules"]["layer"]["class"], "torch.nn.modules.linear.Linear")
        self.assertEqual(self.about()["params"]["router.weight"]["shape"], [4, 3])

    def test_a_manifest_of_a_model_is_written_before_the_first_step(self):
        sumonce_capture.watch(self.out, model=self.ddp, manifest_only=True)
        self.assertEqual(self.about()["ddp"]["gradient_scaling_factor"], 1.0)
        self.assertEqual(self.tensors(), {})
        self.train(1)

    def test_a_manifest_with_a_probe_has_the_probe_alone(self):
        sumonce_capture.watch(self.out, manifest_only=True, probe=True)
        self.train(2)
        self.assertEqual({name.partition("/")[0] for name in self.tensors()}, {"probe_contribution", "probe_finalized"})

    def test_the_probe_puts_gradients_and_buffers_back(self):
        def counts(model, num_tokens=None):
            FINALIZER.finalize_model_grads(model, num_tokens)
            self.router.expert_bias.add_(1)
        states = []
        for probe in False, True:
            self.setUp()
            self.config.finalize_model_grads_func = counts
            capture = sumonce_capture.watch(self.out, model=self.ddp, probe=probe)
            self.train(1, lambda *args: self.config.finalize_model_grads_func(*args))
            capture.close()
            states.append([*(p.main_grad.clone() for p in self.ddp.parameters()), self.router.expert_bias.clone(),
                           self.router.local_tokens_per_expert.clone()])
        self.assertEqual(states[0][-2].tolist(), [0.875, 1.125, 1.125, 1.125])  # the finalizer moved the biases, once
        for one, other in zip(*states):
            self.assertTrue(torch.equal(one, other))
        tensors = self.tensors()
        self.assertFalse(torch.equal(tensors["probe_contribution/layer.weight"], tensors["contribution/layer.weight"]))
        self.assertTrue(torch.equal(tensors["probe_contribution/layer.weight"], tensors["probe_finalized/layer.weight"]))

    def test_a_finalizer_of_the_jobs_own_is_captured_whole(self):
        def own(model, num_tokens=None, **kwargs):
            FINALIZER.finalize_model_grads(model, num_tokens, **kwargs)
            self.ddp.module.layer.weight.main_grad.mul_(2)
        self.config.finalize_model_grads_func = own
        capture = sumonce_capture.watch(self.out, model=self.ddp)
        self.train(1, lambda *args: self.config.finalize_model_grads_func(*args))
        capture.close()
        self.assertIs(self.config.finalize_model_grads_func, own)
        tensors = self.tensors()
        self.assertTrue(torch.equal(tensors["finalized/layer.weight"], 2 * tensors["contribution/layer.weight"]))

    def test_a_finalizer_that_was_imported_by_name_is_found(self):
        trainer = types.ModuleType("some_trainer")
        trainer.finalize_model_grads, sys.modules["some_trainer"] = ORIGINAL, trainer
        sumonce_capture.watch(self.out, manifest_only=True)
        self.train(2, lambda *args: trainer.finalize_model_grads(*args))
        self.assertTrue((self.out / "step-0001").exists())
        self.assertIs(trainer.finalize_model_grads, ORIGINAL)

    def test_nothing_is_overwritten_unasked(self):
        sumonce_capture.watch(self.out).close()
        sumonce_capture.watch(self.out, manifest_only=True)
        self.train(2)
        with self.assertRaisesRegex(CaptureError, r"holds a capture \(step-0001/rank-00000.safetensors\); .*force=True"):
            sumonce_capture.watch(self.out)
        sumonce_capture.watch(self.out, force=True).close()
        self.assertEqual(list((self.out / "step-0001").iterdir()), [])

    def test_what_cannot_be_meant_is_refused(self):
        with self.assertRaisesRegex(CaptureError, r"no parameter's name matches 'fc9\*'; there are layer.weight, "):
            sumonce_capture.watch(self.out, model=self.ddp, params="fc9*")
        with self.assertRaisesRegex(CaptureError, "which are counted from 1"):
            sumonce_capture.watch(self.out, steps=[0])

    def test_a_file_that_cannot_be_written_ends_the_capture_and_not_the_training(self):
        sumonce_capture.watch(self.out, steps=[1, 2])
        self.out.mkdir()
        (self.out / "step-0001").write_text("in the way")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.train(3)
        self.assertIn("could not be written", said.getvalue())
        self.assertEqual([p.name for p in self.out.iterdir()], ["step-0001"])

    def test_experts_and_layers_have_numbers_of_the_whole_model(self):
        model = torch.nn.Module()
        model.decoder = torch.nn.Module()
        model.decoder.layers = torch.nn.ModuleList([torch.nn.Module()])
        layer, model.decoder.layers[0].layer_number = model.decoder.layers[0], 7
        layer.experts = torch.nn.Module()
        layer.experts.local_experts = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
        layer.experts.linear_fc1 = torch.nn.Module()
        layer.experts.linear_fc1.num_gemms = 2
        with unittest.mock.patch.object(parallel_state, "get_expert_model_parallel_rank", lambda: 3):
            names = sumonce_capture.GlobalNames(model)
        for local, whole in {
                "module.decoder.layers.0.experts.local_experts.1.weight": "decoder.layers.0.experts.local_experts.1.weight",
                "decoder.layers.0.experts.local_experts.1.weight": "decoder.layers.6.experts.local_experts.7.weight",
                "decoder.layers.0.experts.linear_fc1.weight0": "decoder.layers.6.experts.linear_fc1.weight6"}.items():
            self.assertEqual(names(local), whole)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        unittest.main()
