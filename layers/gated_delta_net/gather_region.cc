#include "layers/gated_delta_net/gather_region.h"

namespace sumonce {

SequenceParallelOff::SequenceParallelOff(const std::vector<ToggleableModule>& modules,
                                         RegionMarks marks) {
  for (const ToggleableModule& module : modules) {
    if (!*module.sequence_parallel) continue;
    *module.sequence_parallel = false;
    attributes_.push_back(module.sequence_parallel);
    if (marks == RegionMarks::kKeep) continue;
    for (Param* param : module.params) {
      if (!param->marks.sequence_parallel) continue;
      param->marks.sequence_parallel = false;
      if (marks == RegionMarks::kToggleAndRestore) marked_.push_back(param);
    }
  }
}

SequenceParallelOff::~SequenceParallelOff() {
  for (bool* attribute : attributes_) *attribute = true;
  for (Param* param : marked_) param->marks.sequence_parallel = true;
}

}  // namespace sumonce
