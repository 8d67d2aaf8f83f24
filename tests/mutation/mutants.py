"""Finds what can be deleted from the source, by pattern: nothing is listed by hand.

Each mutant is one place: a rule of a finalizer's table or one of its conditions, a call of a collective or one direction of a
pair, a mark that a layer sets, a part of an operation's declaration, an operation of the table for traces. `guarded` is its text
with a switch: as it stands while MutantIs(number) is false, deleted while it is true."""
import dataclasses
import re

SWITCH = "base/mutant_switch.h"
SWITCH_TEXT = """// Which mutant is on: tests/mutation/mutate.py wrote this file.
#pragma once
#include <cstdlib>
inline bool MutantIs(int number) {
  static const int on = [] {
    const char* text = std::getenv("SUMONCE_MUTANT");
    return text ? std::atoi(text) : -1;
  }();
  return on == number;
}
"""


@dataclasses.dataclass
class Mutant:
    kind: str  # "rule", "condition", "collective", "mark", "declaration", "traced operation"
    file: str
    begin: int  # of the text that is replaced
    end: int
    text: str  # what is deleted, on one line
    guarded: str  # with {n} for the mutant's number
    line: int = 0
    number: int = 0

    @property
    def key(self):
        """The same as long as the text stands and its like before it in the file do."""
        return f"{self.kind}|{self.file}|{self.text}|{self.ordinal}"

    ordinal: int = 0


def find(root):
    """All mutants of the tree, those that matter most first."""
    collectives = re.findall(r"^Value (\w+)\(Tape& tape, Value x, Axis", (root / "spmd/collectives.h").read_text(), re.M)
    setters = re.findall(r"^Marks (\w+)\(", (root / "layers/module.h").read_text(), re.M)
    fields = declaration_fields((root / "spmd/operation.h").read_text())
    marks = re.findall(r"^  \w+ (\w+) = [^;]*;", struct_of((root / "spmd/param.h").read_text(), "Marks"), re.M)
    found = []
    for path in sorted(root.glob("sim/finalize/presets/*.cc")):
        found += in_file(root, path, rules) + in_file(root, path, conditions)
    found += in_file(root, root / "sim/grad_norm.cc", conditions) + in_file(root, root / "sim/grad_norm.cc", statements)
    for path in sources(root, "layers"):
        found += in_file(root, path, lambda text: set_marks(text, marks, setters))
    for path in sources(root, "layers"):
        found += in_file(root, path, lambda text: calls(text, collectives))
    found += in_file(root, root / "spmd/collectives.cc", directions)
    for path in sources(root, "spmd/ops"):
        found += in_file(root, path, lambda text: declarations(text, fields))
    for path in sources(root, "trace/declarations"):
        found += in_file(root, path, traced_operations)
    for number, mutant in enumerate(found):
        mutant.number = number
    return found


def sources(root, folder):
    paths = [p for p in sorted((root / folder).rglob("*")) if p.suffix in (".cc", ".h")]
    return [p for p in paths if not p.stem.endswith("_test") and "testing" not in p.parts]


def in_file(root, path, finder):
    text = path.read_text()
    seen, mutants = {}, []
    for mutant in finder(text):
        if in_comment(text, mutant.begin):
            continue
        mutant.file = str(path.relative_to(root))
        mutant.line = text.count("\n", 0, mutant.begin) + 1
        mutant.text = " ".join(mutant.text.split())
        mutant.ordinal = seen[mutant.text] = seen.get(mutant.text, -1) + 1
        mutants.append(mutant)
    return mutants


def in_comment(text, at):
    return "//" in text[text.rfind("\n", 0, at) + 1 : at]


def closing(text, at):
    """The place behind the bracket that closes the one at `at`."""
    depth, i = 0, at
    while i < len(text):
        if text[i] == '"':
            i = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, i).end()
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        i += 1
        if depth == 0:
            return i
    raise ValueError(f"no end of the bracket at {at}")


def expression_end(text, at):
    """Where an initialiser that begins at `at` ends: at a comma, semicolon or closing bracket of its own level."""
    i = at
    while text[i] not in ",;)]}":
        i = closing(text, i) if text[i] in "([{" else i + 1
    return i


def elements(text, at):
    """(begin, end) of the elements of the brace list that opens at `at`."""
    i, end = at + 1, closing(text, at) - 1
    while i < end:
        last = expression_end(text, i)
        begin = i + len(text[i:last]) - len(text[i:last].lstrip())
        if begin < last:
            yield begin, last
        i = last + 1


def struct_of(text, name):
    begin = text.index(f"struct {name} {{")
    return text[begin : closing(text, text.index("{", begin))]


def declaration_fields(text):
    return [f for f in re.findall(r"^  \w+ (\w+) = ", struct_of(text, "Declaration"), re.M)]


# ---- the kinds


def rules(text):
    """Elements of a list of versioned rules: a first version that no preset has deletes one."""
    for function in re.finditer(r"std::vector<VersionedRule> \w+\(\) \{", text):
        list_at = text.index("return {", function.end()) + len("return ")
        for begin, end in elements(text, list_at):
            first = next(elements(text, begin))
            guarded = f"MutantIs({{n}}) ? 1 << 20 : {text[first[0]:first[1]]}"
            name = re.search(r'\.name = ("\w+")', text[begin:end]).group(1)
            versions = text[first[0] : text.index('"', begin)]
            yield Mutant("rule", "", *first, f"{name} from {versions}", guarded)


def conditions(text):
    """Sides of a conjunction that a function returns."""
    for match in re.finditer(r"\breturn ([^;?]*&&[^;?]*);", text):
        begin = match.start(1)
        for side in re.finditer(r"(?:[^&(]|\((?:[^()]|\([^()]*\))*\))+", match.group(1)):
            words = side.group().strip()
            start = begin + side.start() + len(side.group()) - len(side.group().lstrip())
            yield Mutant("condition", "", start, start + len(words), f"{words} of {match.group(1)}",
                         f"(MutantIs({{n}}) || ({escaped(words)}))")


def statements(text):
    """Communications that are a statement of their own."""
    for match in re.finditer(r"SUMONCE_RETURN_IF_ERROR\(\s*AllReduce\(", text):
        end = text.index(";", closing(text, text.index("(", match.start()))) + 1
        statement = text[match.start() : end]
        yield Mutant("collective", "", match.start(), end, statement, f"if (!MutantIs({{n}})) {{{{ {escaped(statement)} }}}}")


def set_marks(text, marks, setters):
    for match in re.finditer(r"^ *((?:for \(.*\) )?)(\w+->marks\.\w+ = \w+;)", text, re.M):
        yield Mutant("mark", "", match.start(2), match.end(2), match.group(2), f"if (!MutantIs({{n}})) {escaped(match.group(2))}")
    for match in re.finditer(r"\.(%s) = " % "|".join(marks), text):
        if text[: match.start()].endswith("marks"):
            continue
        end = expression_end(text, match.end())
        value = text[match.end() : end]
        if text[end] != ";" and "Marks" in text[text.rfind("\n\n", 0, match.start()) : match.start()]:
            yield Mutant("mark", "", match.end(), end, match.group() + value,
                         f"MutantIs({{n}}) ? Marks().{match.group(1)} : ({escaped(value)})")
    for match in re.finditer(r"(?<!Marks )\b(?:%s)\(" % "|".join(setters), text):
        end = closing(text, match.end() - 1)
        call = text[match.start() : end]
        yield Mutant("mark", "", match.start(), end, f"{call} in {line_of(text, match.start())}",
                     f"(MutantIs({{n}}) ? Marks() : {escaped(call)})")


def calls(text, collectives):
    """A collective's result becomes its operand."""
    for match in re.finditer(r"(?<!Value )\b(?:%s)\(tape, " % "|".join(collectives), text):
        end = closing(text, text.index("(", match.start()))
        operand = text[match.end() : expression_end(text, match.end())]
        call = text[match.start() : end]
        yield Mutant("collective", "", match.start(), end, call, f"(MutantIs({{n}}) ? {escaped(operand)} : {escaped(call)})")


def directions(text):
    """One direction of a pair does nothing."""
    for function in re.finditer(r"^Value (\w+)\(Tape& tape, Value x[^{]*\{", text, re.M):
        body = text[function.end() : text.index("\n}", function.end())]
        for match in re.finditer(r"\.map = ([\w:]+)", body):
            if match.group(1) == "Map::kIdentity":
                continue
            begin = function.end() + match.start(1)
            yield Mutant("collective", "", begin, begin + len(match.group(1)), f"{match.group(1)} of {function.group(1)}",
                         f"MutantIs({{n}}) ? Map::kIdentity : {match.group(1)}")


def declarations(text, fields):
    for match in re.finditer(r"\.(%s) = " % "|".join(fields), text):
        end = expression_end(text, match.end())
        value = text[match.end() : end]
        yield Mutant("declaration", "", match.end(), end, match.group() + value,
                     f"MutantIs({{n}}) ? Declaration().{match.group(1)} : ({escaped(value)})")


def traced_operations(text):
    """An operation of the table has another name, so that nobody finds it."""
    places = [m.span(1) for m in re.finditer(r'(?:\.Add\w*|AddChained)\(\s*(?:table,\s*)?("\w+")', text)]
    for names in re.finditer(r'(?:\.Add\w*\(|\w+ :)\s*\{((?:\s*"\w+",?)+)\s*\}', text):
        places += [(names.start(1) + m.start(), names.start(1) + m.end()) for m in re.finditer(r'"\w+"', names.group(1))]
    for begin, end in sorted(places):
        name = text[begin:end]
        yield Mutant("traced operation", "", begin, end, name, f'(MutantIs({{n}}) ? "deleted" : {name})')


def escaped(text):
    """As str.format leaves it."""
    return text.replace("{", "{{").replace("}", "}}")


def line_of(text, at):
    return text[text.rfind("\n", 0, at) + 1 : text.find("\n", at)].strip()


# ---- the copies


def with_switches(text, mutants):
    """The text of a file with a switch at each of its mutants."""
    for mutant in sorted(mutants, key=lambda m: -m.begin):
        text = text[: mutant.begin] + mutant.guarded.format(n=mutant.number) + text[mutant.end :]
    lines = text.split("\n")
    for i, line in enumerate(lines):  # a switch is no constant
        if "MutantIs(" in line and line.startswith("constexpr"):
            lines[i] = "const" + line.removeprefix("constexpr")
    first = next(i for i, line in enumerate(lines) if line.startswith(("#include", "#pragma")))
    place = first if lines[first].startswith("#include") else first + 1
    return "\n".join(lines[:place] + [f'#include "{SWITCH}"'] + lines[place:])
