#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace sumonce::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << file << ":" << line << ": internal error: " << condition << " does not hold: ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", message_.str().c_str());
  std::abort();
}

}  // namespace sumonce::internal
