// A scenario that was made of a user's own job: written to a file and run, as `sumonce run` does.
#pragma once

#include <string>

#include "cli/flags.h"
#include "cli/verb.h"

namespace sumonce {

// `path` is not written over without --force. Returns the exit status of the run.
int WriteAndRun(const std::string& text, const std::string& path, const OutputFlags& output,
                Context& context);

}  // namespace sumonce
