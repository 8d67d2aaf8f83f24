"""What the patterns of mutants.py find in small texts, and that each finds something in the tree."""
import collections
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import mutants  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def switched(finder, text):
    """The text with all switches of what the finder finds, numbered as found."""
    found = list(finder(text))
    for number, mutant in enumerate(found):
        mutant.number = number
    text = mutants.with_switches("#include <x>\n" + text, [shifted(m, len("#include <x>\n")) for m in found])
    return text.split("\n", 2)[2] if text.startswith("#include \"") else text


def shifted(mutant, by):
    mutant.begin, mutant.end = mutant.begin + by, mutant.end + by
    return mutant


class Patterns(unittest.TestCase):
    def test_a_collective_becomes_its_operand(self):
        text = "return on ? AllGather(tape, F(x, {1, 2}), Axis::kTp) : x;"
        self.assertEqual(switched(lambda t: mutants.calls(t, ["AllGather"]), text),
                         "return on ? (MutantIs(0) ? F(x, {1, 2}) : AllGather(tape, F(x, {1, 2}), Axis::kTp)) : x;")
        self.assertEqual(list(mutants.calls("Value AllGather(tape, x) {", ["AllGather"])), [], "its definition is no call")

    def test_one_direction_of_a_pair(self):
        text = "Value Copy(Tape& tape, Value x) {\n  return Pair({.map = Map::kIdentity}, {.map = Map::kSum});\n}\n"
        self.assertIn("{.map = Map::kIdentity}, {.map = MutantIs(0) ? Map::kIdentity : Map::kSum}", switched(mutants.directions, text))

    def test_marks(self):
        find = lambda t: mutants.set_marks(t, ["shared", "partition_dim"], ["ShardedMarks"])  # noqa: E731
        self.assertEqual(switched(find, "  p->marks.shared = false;\n"), "  if (!MutantIs(0)) p->marks.shared = false;\n")
        self.assertEqual(switched(find, "\n\nMarks M() {\n  return {.partition_dim = F(1, 2)};\n}"),
                         "\n\nMarks M() {\n  return {.partition_dim = MutantIs(0) ? Marks().partition_dim : (F(1, 2))};\n}")
        self.assertEqual(switched(find, "Create(w, ShardedMarks(0))"), "Create(w, (MutantIs(0) ? Marks() : ShardedMarks(0)))")
        self.assertEqual(list(find("Marks ShardedMarks(int dim) {")), [])

    def test_a_switch_is_no_constant(self):
        find = lambda t: mutants.set_marks(t, ["shared"], ["ShardedMarks"])  # noqa: E731
        self.assertTrue(switched(find, "\n\nconstexpr Marks kM = {.shared = true};").strip().startswith("const Marks kM"))

    def test_declarations(self):
        self.assertEqual(switched(lambda t: mutants.declarations(t, ["sums", "linear"]), "{.linear = L(0, 1), .sums = a & b}"),
                         "{.linear = MutantIs(0) ? Declaration().linear : (L(0, 1)), .sums = MutantIs(1) ? Declaration().sums : (a & b)}")

    def test_names_of_traced_operations(self):
        text = 'table.Add("cat", {.rule = Cat, .form = "l"});\ntable.AddLocal({"max", "amax"}, "t", M);\nfor (auto n : {"a"}) F(n);'
        self.assertEqual([m.text for m in mutants.traced_operations(text)], ['"cat"', '"max"', '"amax"', '"a"'])

    def test_rules_and_their_conditions(self):
        text = 'std::vector<VersionedRule> T() {\n  return {{kOld, 12, "s", {.name = "r", .claims = C}}, {13, kNew, "s", {.name = "q"}}};\n}'
        self.assertIn('{{MutantIs(0) ? 1 << 20 : kOld, 12, "s", ', switched(mutants.rules, text))
        self.assertIn('{MutantIs(1) ? 1 << 20 : 13, kNew, ', switched(mutants.rules, text))
        self.assertEqual(switched(mutants.conditions, "return a.b && (c || F(d));"),
                         "return (MutantIs(0) || (a.b)) && (MutantIs(1) || ((c || F(d))));")


class Tree(unittest.TestCase):
    def test_every_kind_is_found_and_keys_differ(self):
        found = mutants.find(ROOT)
        kinds = collections.Counter(m.kind for m in found)
        self.assertEqual(len({m.key for m in found}), len(found))
        self.assertEqual(set(kinds), {"rule", "condition", "collective", "mark", "declaration", "traced operation"}, kinds)

    def test_every_rule_of_every_version_is_found(self):
        text = (ROOT / "sim/finalize/presets/megatron_core.cc").read_text()
        self.assertEqual(len(list(mutants.rules(text))), text.count(".name = \""))

    def test_every_place_gets_its_switch(self):
        by_file = collections.defaultdict(list)
        for mutant in mutants.find(ROOT):
            by_file[mutant.file].append(mutant)
        for file, of_file in by_file.items():
            text = mutants.with_switches((ROOT / file).read_text(), of_file)
            for mutant in of_file:
                self.assertEqual(text.count(f"MutantIs({mutant.number})"), 1, mutant.key)


if __name__ == "__main__":
    unittest.main()
