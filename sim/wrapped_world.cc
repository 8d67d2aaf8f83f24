#include "sim/wrapped_world.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sumonce {

WrappedWorld::WrappedWorld(Communicator& world, const Effects& effects, bool own_process,
                           CallRecorder* recorder)
    : rank_(world.rank()), outer_(&world) {
  if (recorder != nullptr) {
    recorded_ = recorder->Wrap(*outer_);
    outer_ = recorded_.get();
  }
  std::vector<CallFault> faults;
  for (const auto& effect : effects.all()) effect->OnTransport(faults);
  if (faults.empty()) return;
  injector_ = std::make_unique<FaultInjector>(std::move(faults), own_process);
  faulty_ = injector_->Wrap(*outer_);
  outer_ = faulty_.get();
}

absl::Status WrappedWorld::Ended(absl::Status status) const {
  if (!status.ok() || injector_ == nullptr) return status;
  status = injector_->CheckAllActed();
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("defect { communication }: rank ", rank_, ": ", status.message()));
}

}  // namespace sumonce
