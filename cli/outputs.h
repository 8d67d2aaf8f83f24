// The reports that the flags ask for, as one reporter.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "cli/output_file.h"
#include "report/reporter.h"

namespace sumonce {

class Outputs : public Reporter {
 public:
  // Opens the files, so that a path that cannot be written is known before anything runs.
  static absl::StatusOr<std::unique_ptr<Outputs>> Open(const OutputFlags& flags, bool proof_only,
                                                       Io& io);

  // The same of audits.
  static absl::StatusOr<std::unique_ptr<Outputs>> OpenForAudit(const OutputFlags& flags, Io& io);

  void Begin(int scenarios) override;
  void OnResult(const ScenarioResult& result) override;
  // If stdout holds no text for people, the counts go to stderr.
  void End(const Summary& summary) override;
  // After End: puts the files in their places.
  absl::Status Commit();

 private:
  explicit Outputs(Io& io) : io_(io) {}
  static absl::StatusOr<std::unique_ptr<Outputs>> OpenWith(const OutputFlags& flags,
                                                           const ReporterOptions& view, Io& io);

  Io& io_;
  std::vector<std::unique_ptr<OutputFile>> files_;
  std::vector<std::unique_ptr<Reporter>> reporters_;
  bool console_on_stdout_ = false;
  bool audit_ = false;
};

}  // namespace sumonce
