// The exit status of the program: an interface that scripts rely on (README.md).
#pragma once

#include "report/reporter.h"

namespace sumonce {

enum ExitCode : int {
  kAsExpected = 0,
  kDiffers = 1,
  kInterrupted = 2,
  kInternalError = 3,
  kUsage = 4,  // wrong arguments, mistakes in the input, output that cannot be written
  kNothingSelected = 5,
  kAllSkipped = 77,  // ctest's and Automake's "skipped"
};

// What a run comes to; the gravest thing decides. Of captures that were to be saved and none of
// which could be, kAllSkipped.
ExitCode ExitCodeOf(const Summary& summary);

}  // namespace sumonce
