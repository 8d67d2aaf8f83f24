// A module map: what a job's own module classes are, in a small textproto beside the job
// (proto/module_map.proto).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/lint/module_kinds.h"
#include "verify/verdict.h"

namespace sumonce::lint {

struct ModuleMapEntry {
  std::string class_name;  // a glob; empty: any
  std::string path;        // a glob; empty: any
  std::optional<ModuleKind> acts_as;
  struct ParamClass {
    std::string name;  // a glob of the name below the module: "weight", "*"
    GradClass grad_class = GradClass::kUnknown;
  };
  std::vector<ParamClass> params;
};

struct ModuleMap {
  std::vector<ModuleMapEntry> modules;  // the first that fits decides

  // nullptr: none fits.
  const ModuleMapEntry* Find(const std::string& path, const std::string& class_name) const;
};

// NotFound, InvalidArgument with "file:line:col: error: ..." for each mistake.
absl::StatusOr<ModuleMap> ReadModuleMap(const std::string& path);

}  // namespace sumonce::lint
