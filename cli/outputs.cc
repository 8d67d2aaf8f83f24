#include "cli/outputs.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "report/console_text.h"

namespace sumonce {
namespace {

constexpr char kConsole[] = "console";

bool UseColor(ColorChoice choice, bool on_stdout, const Io& io) {
  if (choice != ColorChoice::kAuto) return choice == ColorChoice::kAlways;
  return on_stdout && io.out_is_terminal && !io.no_color;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Outputs>> Outputs::Open(const OutputFlags& flags, bool proof_only,
                                                       Io& io) {
  return OpenWith(flags, {.proof_only = proof_only}, io);
}

absl::StatusOr<std::unique_ptr<Outputs>> Outputs::OpenForAudit(const OutputFlags& flags, Io& io) {
  return OpenWith(flags, {.audit = true}, io);
}

absl::StatusOr<std::unique_ptr<Outputs>> Outputs::OpenWith(const OutputFlags& flags,
                                                           const ReporterOptions& view, Io& io) {
  std::vector<FormatSpec> specs = flags.formats;
  if (specs.empty()) specs.push_back({FindReportFormat(kConsole), ""});
  std::unique_ptr<Outputs> outputs(new Outputs(io));
  outputs->audit_ = view.audit;
  std::set<std::string> paths;
  for (const FormatSpec& spec : specs) {
    if (!spec.path.empty() && !paths.insert(spec.path).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--format: ", spec.path, " is named twice; give each format its own file"));
    }
    if ((view.proof_only || view.audit) && spec.format->needs_calls) {
      return absl::InvalidArgumentError(
          absl::StrCat("--format ", spec.format->name, ": ", view.audit ? "an audit" : "a proof",
                       " runs no ranks and has no calls to show; use `sumonce run`"));
    }
    std::ostream* stream = &io.out;
    if (!spec.path.empty()) {
      SUMONCE_ASSIGN_OR_RETURN(auto file, OutputFile::Open(spec.path, flags.force));
      stream = &file->stream();
      outputs->files_.push_back(std::move(file));
    } else if (spec.format->name == kConsole) {
      outputs->console_on_stdout_ = true;
    }
    ReporterOptions options = view;
    options.color = UseColor(flags.color, spec.path.empty(), io);
    outputs->reporters_.push_back(spec.format->make(*stream, options));
  }
  return outputs;
}

void Outputs::Begin(int scenarios) {
  for (const auto& reporter : reporters_) reporter->Begin(scenarios);
}

void Outputs::OnResult(const ScenarioResult& result) {
  for (const auto& reporter : reporters_) reporter->OnResult(result);
}

void Outputs::End(const Summary& summary) {
  for (const auto& reporter : reporters_) reporter->End(summary);
  if (console_on_stdout_) return;
  io_.err << (audit_ ? AuditSummaryText(summary) : SummaryText(summary)) << std::flush;
}

absl::Status Outputs::Commit() {
  absl::Status first;
  for (const auto& file : files_) first.Update(file->Commit());
  return first;
}

}  // namespace sumonce
