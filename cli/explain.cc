// sumonce explain: what the words of a report mean.
#include <memory>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cli/exit_code.h"
#include "cli/verb.h"
#include "report/glossary.h"
#include "report/text_table.h"

namespace sumonce {
namespace {

void Print(const GlossaryEntry& entry, std::ostream& out) {
  out << entry.word << "  (" << entry.kind << ")\n  " << entry.says << '\n';
  if (!entry.formula.empty()) out << "  formula: " << entry.formula << '\n';
  for (const std::string& line : entry.details) out << "  " << line << '\n';
  if (!entry.cure.empty()) out << "  cure: " << entry.cure << '\n';
  if (!entry.shown_by.empty()) out << "  shown by: sumonce run " << entry.shown_by << '\n';
}

void PrintAll(const std::vector<GlossaryEntry>& glossary, std::ostream& out) {
  std::vector<std::vector<std::string>> rows;
  for (const GlossaryEntry& entry : glossary)
    rows.push_back(
        {entry.kind, entry.word, entry.kind == "operation" ? entry.formula : entry.says});
  out << AlignedRows(rows, 0, 3);
}

int Explain(const std::vector<std::string>& words, Context& context) {
  const std::vector<GlossaryEntry> glossary = Glossary();
  if (words.empty()) {
    PrintAll(glossary, context.io.out);
    return kAsExpected;
  }
  std::vector<std::string> known;
  for (const GlossaryEntry& entry : glossary) known.push_back(entry.word);
  int status = kAsExpected;
  for (const std::string& word : words) {
    bool found = false;
    for (const GlossaryEntry& entry : glossary) {
      if (absl::AsciiStrToLower(entry.word) != absl::AsciiStrToLower(word)) continue;
      Print(entry, context.io.out);
      found = true;
    }
    if (found) continue;
    const std::string closest = Closest(word, known);
    context.io.err << "sumonce explain: '" << Printable(word) << "' is no word of a report"
                   << (closest.empty() ? "; sumonce explain lists them"
                                       : absl::StrCat("; did you mean '", closest, "'?"))
                   << '\n';
    status = kUsage;
  }
  return status;
}

}  // namespace

VerbAction DeclareExplain(CLI::App& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  app.add_option("words", *words,
                 "Verdicts, mechanisms, classes, marks, defects, presets, rules, layers, "
                 "operations; none: all of them")
      ->type_name("WORD");
  return [words](Context& context) { return Explain(*words, context); };
}

}  // namespace sumonce
