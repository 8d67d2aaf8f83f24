"""The tracer's own test: needs PyTorch, and no framework. Exit code 77 (skipped) without it.

    python3 tests/peers/trace/tracer_test.py"""
import contextlib
import gzip
import json
import multiprocessing
import os
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRACER = HERE.parents[2] / "trace" / "python"

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"tracer_test: skipped: {error}; pip install torch", file=sys.stderr)
    sys.exit(77)
sys.path[:0] = [str(TRACER), str(HERE)]
import jobs  # noqa: E402
import sumonce_trace  # noqa: E402


def run(job, *options, out=None):
    """The command line's exit code, what it and its processes said, and the folder."""
    out = out or Path(tempfile.mkdtemp()) / "traces"
    with tempfile.TemporaryFile("w+") as said, everything_to(said):
        try:
            code = sumonce_trace.main([f"{HERE}/jobs.py:{job}", "--out", str(out), *options])
        except SystemExit as exit:
            code = exit.code
        sys.stdout.flush()
        said.seek(0)
        return code, said.read(), out


@contextlib.contextmanager
def everything_to(file):
    kept = [os.dup(1), os.dup(2)]
    for descriptor in (1, 2):
        os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, old in zip((1, 2), kept):
            os.dup2(old, descriptor)
            os.close(old)


def read(path):
    with gzip.open(path, "rt") as lines:
        header, *rest = [json.loads(line) for line in lines]
    return header, {r["tensor"]: r for r in rest if "tensor" in r}, [r for r in rest if "op" in r]


class FourTraces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.code, cls.said, cls.out = run("right", "--tp", "2,4")

    def test_makes_what_a_proof_needs(self):
        self.assertEqual(self.code, 0, self.said)
        self.assertEqual(sorted(p.name for p in self.out.iterdir()),
                         ["tp1.rank0.jsonl.gz", "tp2.rank0.jsonl.gz", "tp2.rank1.jsonl.gz", "tp4.rank0.jsonl.gz"])
        self.assertIn(f"sumonce prove --trace {self.out}", self.said)

    def test_header_names_the_rank_and_the_parameters_with_their_marks_after_the_step(self):
        header, *_ = read(self.out / "tp2.rank1.jsonl.gz")
        self.assertEqual([header[k] for k in ("format", "version", "axis", "size", "rank", "group")],
                         ["sumonce-trace", 1, "tp", 2, 1, [0, 1]])
        self.assertEqual(header["params"]["row.weight"], {"shape": [8, 4], "grad": True, "marks": {"partition_dim": 1}})

    def test_phases_follow_each_other(self):
        _, _, operations = read(self.out / "tp2.rank0.jsonl.gz")
        phases = [o["phase"] for o in operations]
        self.assertEqual(sorted(set(phases)), ["backward", "finalize", "forward"])
        self.assertEqual(phases, sorted(phases, key=["forward", "backward", "finalize"].index))

    def test_a_backward_operation_belongs_to_the_module_of_its_node(self):
        _, _, operations = read(self.out / "tp2.rank0.jsonl.gz")
        products = [o["module"] for o in operations if o["op"] == "aten.mm" and o["phase"] == "backward"]
        self.assertEqual(products[0], "row")
        self.assertEqual(products[-1], "column")

    def test_gradients_inputs_and_outside_tensors_are_told_apart(self):
        _, tensors, _ = read(self.out / "tp2.rank0.jsonl.gz")
        named = {(t["kind"], t["name"]) for t in tensors.values() if "kind" in t}
        self.assertEqual(named, {("param", "column.weight"), ("param", "row.weight"), ("grad", "column.weight"),
                                 ("grad", "row.weight"), ("input", "input0")})
        self.assertEqual([t["digest"] for t in tensors.values() if "digest" in t], [None])  # Model.scale

    def test_the_header_says_how_many_operations_follow(self):
        header, _, operations = read(self.out / "tp1.rank0.jsonl.gz")
        self.assertEqual(header["operations"], len(operations))

    def test_gradients_that_the_finalizer_replaces_are_known_as_they_were(self):
        _, _, out = run("new_gradients", "--tp", "2,4")
        _, tensors, operations = read(out / "tp2.rank0.jsonl.gz")
        named = {(t["kind"], t["name"]): n for n, t in tensors.items() if "kind" in t}
        last = [o for o in operations if o["phase"] == "finalize"][-1]
        self.assertEqual(last["args"][0], {"t": named["grad_before", "row.weight"]})
        self.assertEqual(last["out"], [named["grad", "row.weight"]])

    def test_a_view_shares_its_storage(self):
        _, tensors, operations = read(self.out / "tp2.rank0.jsonl.gz")
        view = next(o for o in operations if o["op"] == "aten.t")
        source, result = tensors[view["args"][0]["t"]], tensors[view["out"][0]]
        self.assertEqual(source["storage"], result["storage"])
        self.assertEqual(source["strides"], result["strides"][::-1])

    def test_an_in_place_operation_writes(self):
        _, tensors, operations = read(self.out / "tp2.rank0.jsonl.gz")
        written = [tensors[o["writes"][0]].get("kind") for o in operations if o["op"] == "aten.mul_.Tensor"]
        self.assertEqual(written, ["grad", "grad"])

    def test_a_collective_names_its_group_and_reduction(self):
        _, _, operations = read(self.out / "tp2.rank0.jsonl.gz")
        call = next(o for o in operations if o["op"] == "c10d.allreduce_")
        self.assertEqual(call["args"][1:3], [{"group": [0, 1]}, {"reduce": "SUM"}])

    def test_the_unsharded_trace_has_no_collective(self):
        _, _, operations = read(self.out / "tp1.rank0.jsonl.gz")
        self.assertFalse([o for o in operations if o["op"].startswith("c10d.")])

    def test_the_same_job_gives_the_same_bytes(self):
        _, _, again = run("right", "--tp", "2,4")
        for path in self.out.iterdir():
            self.assertEqual(path.read_bytes(), (again / path.name).read_bytes())


class RealTensors(unittest.TestCase):
    def test_they_run_the_same_program_and_give_digests(self):
        code, said, real = run("right", "--tp", "2,4", "--real")
        self.assertEqual(code, 0, said)
        _, _, fake = run("right", "--tp", "2,4")
        of_real, of_fake = read(real / "tp4.rank0.jsonl.gz"), read(fake / "tp4.rank0.jsonl.gz")
        self.assertEqual(of_real[2], of_fake[2])
        self.assertEqual([len(t["digest"]) for t in of_real[1].values() if "digest" in t], [12])

    def test_the_audit_finds_a_hidden_write_and_writes_no_trace(self):
        code, said, out = run("hides_a_write", "--tp", "2,4", "--real", "--audit")
        self.assertEqual(code, 1)
        self.assertRegex(said, r"memory changed outside the dispatcher(.|\n)*between @\d+ .* and @\d+ aten\.sum")
        self.assertEqual(list(out.iterdir()), [])

    def test_the_audit_of_a_clean_step_finds_nothing(self):
        code, said, _ = run("right", "--tp", "2,4", "--real", "--audit")
        self.assertEqual(code, 0, said)

    def test_a_number_that_the_step_reads_is_recorded(self):
        code, said, out = run("reads_a_number", "--tp", "2,4", "--real")
        self.assertEqual(code, 0, said)
        reads = [o for o in read(out / "tp2.rank0.jsonl.gz")[2] if o["op"] == "aten._local_scalar_dense"]
        self.assertIsInstance(reads[0]["kwargs"]["value"], float)


class FakeTensors(unittest.TestCase):
    def test_a_model_is_moved_and_keeps_its_marks(self):
        code, said, _ = run("converted", "--tp", "2,4")
        self.assertEqual(code, 0, said)

    def test_coalesced_all_reduces_are_recorded(self):
        code, said, out = run("coalesced", "--tp", "2,4")
        self.assertEqual(code, 0, said)
        calls = [o for o in read(out / "tp2.rank0.jsonl.gz")[2] if o["op"] == "c10d.allreduce_coalesced_"]
        self.assertEqual([len(o["args"][0]) for o in calls], [2])

    def test_an_operation_that_needs_numbers_is_named_with_its_line(self):
        code, said, _ = run("reads_a_number", "--tp", "2,4")
        self.assertEqual(code, 1)
        self.assertRegex(said, r"reads_a_number at tp 2, rank 0: .*jobs\.py:\d+: aten\._local_scalar_dense .*--real")


class Mistakes(unittest.TestCase):
    def test_are_told_with_a_cure(self):
        for job, options, code, message in (
                ("rigth", ["--tp", "2,4"], 4, "no function 'rigth'; did you mean 'right'?"),
                ("right", ["--tp", "2"], 4, "--tp 2: expected n,2n"),
                ("right", ["--tp", "2,3"], 4, "--tp 2,3: expected n,2n"),
                ("right", ["--tp", "1,2"], 4, "--tp 1,2: expected n,2n"),
                ("right", ["--tp", "two,4"], 4, "--tp two,4: expected n,2n"),
                ("right", ["--tp", "2,4", "--audit"], 4, "add --real"),
                ("right", [], 4, "the following arguments are required: --tp"),
                ("traces_nothing", ["--tp", "2,4"], 1, "returned without `with sumonce_trace.trace(model)`"),
                ("traces_twice", ["--tp", "2,4"], 1, "the job traces twice"),
                ("dirty_gradients", ["--tp", "2,4", "--real"], 1, "gradient of column.weight is not zero"),
                ("exits", ["--tp", "2,4"], 1, "exits at tp 2, rank 0: {0}: SystemExit: 0"),
                ("exits_at_once", ["--tp", "2,4"], 1, "exits_at_once at tp 2, rank 0 ended its process (0)"),
                ("fails", ["--tp", "2,4"], 1, "no such layer")):
            with self.subTest(job=job, options=options):
                found, said, _ = run(job, *options)
                self.assertEqual(found, code, said)
                self.assertIn(message.split("{0}")[0], said)
                self.assertIn(message.split("{0}")[-1], said)

    def test_a_folder_that_is_none(self):
        with tempfile.NamedTemporaryFile() as file:
            code, said, _ = run("right", "--tp", "2,4", out=Path(file.name))
        self.assertEqual(code, 4)
        self.assertIn("File exists", said)

    def test_a_job_may_be_named_as_a_module_of_pythons(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder, "json.py")
            job.write_text(f"import sys\nsys.path.append({str(HERE)!r})\nfrom jobs import right as of_jobs\n\n"
                           "def step(tp_size):\n    of_jobs(tp_size)\n")
            with tempfile.TemporaryFile("w+") as said, everything_to(said):
                code = sumonce_trace.main([f"{job}:step", "--tp", "2,4", "--out", f"{folder}/traces"])
                said.seek(0)
                self.assertEqual(code, 0, said.read())

    def test_a_job_that_is_not_there(self):
        with tempfile.TemporaryFile("w+") as said, everything_to(said):
            self.assertEqual(sumonce_trace.main(["nowhere.py:step", "--tp", "2,4"]), 4)
            said.seek(0)
            self.assertIn("expected JOB.py:STEP", said.read())

    def test_traces_that_are_there_are_kept(self):
        _, _, out = run("right", "--tp", "2,4")
        code, said, _ = run("right", "--tp", "2,4", out=out)
        self.assertEqual(code, 4)
        self.assertIn("exists and is not empty; name another with --out, or pass --force", said)
        self.assertEqual(run("right", "--tp", "2,4", "--force", out=out)[0], 0)


def as_rank(rank, step, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    getattr(jobs, step)(Path(folder) / "traces")
    dist.destroy_process_group()


class OwnProcessGroup(unittest.TestCase):
    def trace(self, step):
        folder = tempfile.mkdtemp()
        ranks = [multiprocessing.get_context("fork").Process(target=as_rank, args=(r, step, folder)) for r in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
            self.assertEqual(rank.exitcode, 0)
        return Path(folder) / "traces"

    def test_records_what_the_one_process_records(self):
        own, (_, _, fake) = self.trace("own_ranks"), run("right", "--tp", "2,4")
        for rank in range(2):
            name = f"tp2.rank{rank}.jsonl.gz"
            self.assertEqual(read(own / name)[2], read(fake / name)[2])

    def test_leaves_out_what_gloo_does(self):
        _, _, operations = read(self.trace("reduce_scatters") / "tp2.rank1.jsonl.gz")
        self.assertEqual([o["op"] for o in operations][-2:], ["c10d._reduce_scatter_base_", "aten.mul_.Tensor"])

    def test_a_trace_that_is_there_is_kept(self):
        folder = Path(tempfile.mkdtemp())
        (folder / "tp1.rank0.jsonl.gz").touch()
        with self.assertRaisesRegex(sumonce_trace.TraceError, "exists; remove it, or pass force=True"):
            with sumonce_trace.trace(torch.nn.Linear(2, 2), folder):
                pass

    def test_needs_a_folder(self):
        with self.assertRaisesRegex(sumonce_trace.TraceError, "where to?"):
            with sumonce_trace.trace(torch.nn.Linear(2, 2)):
                pass


class Names(unittest.TestCase):
    def test_are_those_of_a_checkpoint(self):
        for name, expected in (("module.module.decoder.layers.0.weight", "decoder.layers.0.weight"),
                               ("module.base_model.model.decoder.linear_qkv.base_layer.weight", "decoder.linear_qkv.weight"),
                               ("module", ""), ("modules.weight", "modules.weight")):
            self.assertEqual(sumonce_trace.checkpoint_name(name), expected)


if __name__ == "__main__":
    torch.set_num_threads(1)
    program = unittest.main(exit=False)
    result = program.result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed, {len(result.skipped)} skipped")
    sys.exit(1 if failed else 0)
