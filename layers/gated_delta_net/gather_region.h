// The toggle of mcore-bridge's gather region: turns sequence_parallel off on modules for one call,
// and does to the marks of their parameters what it is told.
#pragma once

#include <vector>

#include "layers/module.h"

namespace sumonce {

// What the gather region does with the sequence_parallel mark of its modules' parameters that carry
// it.
enum class RegionMarks : uint8_t {
  kLeaveOff,  // cleared with the module and left off: right
  kKeep,      // only the module is toggled: the complete gradient is summed again (times tp)
  kToggleAndRestore,  // restored with the module: marks are read after backward, still times tp
};

// Turns the modules' attribute off for the life of the object. Modules whose attribute is off
// already, and parameters without the mark, are left alone.
class SequenceParallelOff {
 public:
  SequenceParallelOff(const std::vector<ToggleableModule>& modules, RegionMarks marks);
  ~SequenceParallelOff();
  SequenceParallelOff(const SequenceParallelOff&) = delete;

 private:
  std::vector<bool*> attributes_;
  std::vector<Param*> marked_;  // to be marked again
};

}  // namespace sumonce
