#include "trace/program.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::trace {

int64_t Count(const Geometry& geometry) {
  int64_t count = 1;
  for (const int64_t extent : geometry.shape) count *= extent;
  return count;
}

std::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kFinalizer:
      return "finalizer";
  }
  return "";
}

std::string OperationName(const Program& program, int op) {
  const Operation& operation = program.ops[op];
  std::string name = absl::StrCat("@", op, " ", ToAbsl(operation.name));
  if (!operation.module.empty()) absl::StrAppend(&name, " [", ToAbsl(operation.module), "]");
  return name;
}

std::string ShapeText(const Extents& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace sumonce::trace
