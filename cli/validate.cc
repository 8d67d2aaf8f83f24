// sumonce validate: every mistake of every file, and nothing run.
#include <memory>

#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/selection.h"
#include "cli/verb.h"

namespace sumonce {
namespace {

int Validate(const SelectionFlags& flags, Context& context) {
  const Selection selection = Select(flags);
  const int status = Complain(selection, context);
  if (status == kAsExpected)
    context.io.out << "sumonce: " << selection.runs.size() << " valid, no mistakes\n";
  if (status == kUsage) {
    const size_t count = selection.mistakes.size();
    context.io.err << "sumonce: " << count << (count == 1 ? " mistake\n" : " mistakes\n");
  }
  return status;
}

}  // namespace

VerbAction DeclareValidate(CLI::App& app) {
  auto flags = std::make_shared<SelectionFlags>();
  AddPaths(app, *flags);
  AddFilter(app, *flags);
  AddAxes(app, *flags);
  return [flags](Context& context) { return Validate(*flags, context); };
}

}  // namespace sumonce
