// The one symbol of the module that links CUDA and NCCL: what it hands over, and the version that
// both sides must have.
#pragma once

#include "comm/nccl/api.h"

namespace sumonce::nccl {

// Raised with every change of comm/nccl/api.h: a module of another build is refused.
inline constexpr int kModuleVersion = 1;
inline constexpr char kModuleEntry[] = "sumonce_nccl_module";

struct Module {
  Api api;
  int built_with_nccl = 0;  // NCCL_VERSION_CODE of its header
};

using ModuleEntry = const Module* (*)(int version);  // null: of another version

}  // namespace sumonce::nccl
