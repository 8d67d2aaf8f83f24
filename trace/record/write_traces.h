// Programs as trace files (docs/TRACE.md "Format"), which ReadTraces takes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "trace/trace_set.h"

namespace sumonce::trace {

// JSON lines: the header, each tensor before its first use, the operations.
std::string ProgramText(const Program& program);

// Writes <dir>/<axis><size>.rank<r>.jsonl.gz for each of the set's programs, making the folder.
// AlreadyExists, and nothing is written, if traces lie there, unless `overwrite`. InvalidArgument:
// a folder or a file that cannot be made, with the system's reason.
absl::Status WriteTraces(const TraceSet& set, const std::string& dir, bool overwrite);

}  // namespace sumonce::trace
