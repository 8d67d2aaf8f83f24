// The traces of one job that a proof needs: every rank at size n, rank 0 at 2n, the unsharded one
// (docs/TRACE.md "Four traces").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trace/program.h"

namespace sumonce::trace {

struct TraceSet {
  std::string name;              // of the folder
  std::vector<Program> ranks;    // every rank at size n, in order
  std::optional<Program> twice;  // rank 0 at 2n
  std::optional<Program> whole;  // unsharded

  const Program& base() const { return ranks[0]; }
  int size() const { return static_cast<int>(ranks.size()); }
};

// Reads `<axis><size>.rank<r>.jsonl` or `.jsonl.gz` of a folder; n is the smallest size above 1,
// other sizes than 1, n and 2n are not looked at. InvalidArgument: the errors of ReadProgram, a
// folder without traces, a rank that is missing, a name that belies its header. What a proof needs
// beyond size n may be absent.
absl::StatusOr<TraceSet> ReadTraces(const std::string& dir);

}  // namespace sumonce::trace
