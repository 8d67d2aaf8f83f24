// sumonce list: the scenarios there are, and what each is about.
#include <fstream>
#include <memory>

#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/selection.h"
#include "cli/verb.h"
#include "report/text_table.h"

namespace sumonce {
namespace {

constexpr std::streamsize kMaxLine = 1000;  // whatever the file is

// The first sentence of the file's comment, over its lines, after the two that tell editors the
// schema; empty if it has none.
std::string FirstSentence(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char line[kMaxLine];
  std::string sentence;
  while (file.getline(line, kMaxLine)) {
    const std::string text = line;
    if (text.starts_with("# proto-")) continue;
    if (!text.starts_with("# ") || sentence.size() > kMaxLine) break;
    sentence += (sentence.empty() ? "" : " ") + text.substr(2);
    const size_t end = (sentence + " ").find(". ");
    if (end != sentence.npos) return sentence.substr(0, end + 1);
  }
  return sentence;
}

int List(const SelectionFlags& flags, Context& context) {
  Selection selection;
  std::vector<std::vector<std::string>> rows;
  for (const ScenarioFile& file : FindSelected(flags, selection))
    rows.push_back({file.name, FirstSentence(file.path)});
  context.io.out << AlignedRows(rows, 0, 2);
  return Complain(selection, context);
}

}  // namespace

VerbAction DeclareList(CLI::App& app) {
  auto flags = std::make_shared<SelectionFlags>();
  AddPaths(app, *flags);
  AddFilter(app, *flags);
  return [flags](Context& context) { return List(*flags, context); };
}

}  // namespace sumonce
