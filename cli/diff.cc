// sumonce diff: how two safetensors files or folders differ.
#include "capture/diff/diff.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/file_loop.h"
#include "cli/report_loop.h"
#include "cli/verb.h"

namespace sumonce {
namespace {

struct DiffFlags {
  std::string a, b;
  diff::DiffOptions options;
  OutputFlags output;
};

std::string ReplayLine(const DiffFlags& flags, const Context& context) {
  std::string line = absl::StrCat(ShellQuoted(context.program), " diff ", ShellQuoted(flags.a), " ",
                                  ShellQuoted(flags.b));
  if (flags.options.filter != "*")
    absl::StrAppend(&line, " --filter ", ShellQuoted(flags.options.filter));
  if (flags.options.rtol)
    absl::StrAppend(&line, " --rtol ", *flags.options.rtol, " --atol ", *flags.options.atol);
  return line;
}

int Diff(const DiffFlags& flags, Context& context) {
  const auto judge = [&](const std::string&) -> absl::StatusOr<ScenarioResult> {
    SUMONCE_ASSIGN_OR_RETURN(const diff::DiffReport report,
                             diff::Diff(flags.a, flags.b, flags.options));
    ScenarioResult result = diff::ToResult(report);
    result.reproduce = ReplayLine(flags, context);
    return result;
  };
  return ReportFiles({flags.a}, {.output = flags.output, .judge = judge}, context);
}

}  // namespace

VerbAction DeclareDiff(CLI::App& app) {
  auto flags = std::make_shared<DiffFlags>();
  app.add_option("a", flags->a, "A safetensors file, or a folder of them")
      ->type_name("A")
      ->required();
  app.add_option("b", flags->b, "What it is compared with: another of its kind")
      ->type_name("B")
      ->required();
  auto* rtol = app.add_option("--rtol", flags->options.rtol,
                              "Allowed relative difference (default: assert_close's for the dtype)")
                   ->check(CLI::NonNegativeNumber);
  auto* atol = app.add_option("--atol", flags->options.atol, "Allowed absolute difference")
                   ->check(CLI::NonNegativeNumber);
  rtol->needs(atol);
  atol->needs(rtol);
  app.add_option("--filter", flags->options.filter, "Only tensors whose name matches this glob")
      ->type_name("GLOB");
  AddOutput(app, flags->output);
  return [flags](Context& context) { return Diff(*flags, context); };
}

}  // namespace sumonce
