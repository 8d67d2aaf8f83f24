// How much of an exhaustive search a test runs: all of it, or under a sanitizer each n-th case. The
// cases of such a search take the same paths with other values; a sanitizer looks at paths.
#pragma once

#include "base/fiber_annotations.h"

namespace sumonce {

// A test asserts what it found of the cases that it ran, never that it ran all of them.
#if defined(SUMONCE_ASAN) || defined(SUMONCE_TSAN)
inline constexpr int kSearchStride = 6;
#else
inline constexpr int kSearchStride = 1;
#endif

}  // namespace sumonce
