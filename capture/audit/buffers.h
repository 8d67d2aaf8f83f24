// Where a capture holds more of how a contribution came about (one microbatch's share, one use's
// share), whether the buffer is what they add up to. Needs no reference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/audit/geometry.h"
#include "capture/audit/measure.h"
#include "verify/verdict.h"

namespace sumonce::capture {

struct BufferFault {
  // LOST_CONTRIBUTION: a microbatch's share is absent or there twice; STALE: an earlier step's
  // gradient is in it; WRONG_SHARD, LOCAL_GRADIENT: the buffer is not what the uses give.
  Mechanism mechanism = Mechanism::kNone;
  std::vector<std::string> evidence;
};

struct Buffers {
  std::optional<BufferFault> fault;
  // The uses' shares, along the tensor axis: complete in some, partial in others.
  bool mixed_uses = false;
  std::string uses;  // "use@0 equal, use@1 different"
};

// Kinds `contribution@<microbatch>` and `use@<number>`; nothing is found where there are none.
absl::StatusOr<Buffers> CheckBuffers(const Step& step, const Step* previous,
                                     const ParamGeometry& geometry, const Measure& measure,
                                     const MeasureOptions& options);

}  // namespace sumonce::capture
