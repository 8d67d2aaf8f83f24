// The world communicator of one rank as its simulation sees it: with the transport faults that the
// rank's edits name, and recorded if asked. A recording stands next to the transport: it shows the
// calls as they reached it.
#pragma once

#include <memory>

#include "comm/fault.h"
#include "comm/recording.h"
#include "sim/defects/effect.h"

namespace sumonce {

class WrappedWorld {
 public:
  // `own_process`: the transport runs each rank in a process of its own. `recorder` may be null.
  // Outlived by `world` and the recorder; outlives every group that is made through it.
  WrappedWorld(Communicator& world, const Effects& effects, bool own_process,
               CallRecorder* recorder);

  Communicator& communicator() { return *outer_; }
  // The status of a rank that has ended: an OK one needs every fault to have acted.
  absl::Status Ended(absl::Status status) const;

 private:
  int rank_;
  std::unique_ptr<Communicator> recorded_;
  std::unique_ptr<FaultInjector> injector_;
  std::unique_ptr<Communicator> faulty_;
  Communicator* outer_;
};

}  // namespace sumonce
