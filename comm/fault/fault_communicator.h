// The wrapper that does to a call what its rank's faults say (comm/fault.h).
#pragma once

#include <memory>
#include <string_view>

#include "comm/communicator.h"
#include "comm/fault/fault_state.h"

namespace sumonce {

class FaultCommunicator : public Communicator {
 public:
  // Owns `owned`, if any; else `inner` outlives it.
  FaultCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned,
                    std::shared_ptr<FaultState> state);
  ~FaultCommunicator() override;

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Properties properties() const override { return inner_.properties(); }
  absl::StatusOr<std::unique_ptr<Work>> Start(Call call) override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      std::string_view label) override;
  void Abort(absl::Status status) override { inner_.Abort(std::move(status)); }

 private:
  absl::StatusOr<std::unique_ptr<Work>> StartFaulty(const CallFault& fault, Call call);
  // The call on `on`, then the one that was held back until now.
  absl::StatusOr<std::unique_ptr<Work>> Make(Communicator& on, Call call, std::vector<char> sent);
  absl::Status Kill(const CallFault& fault, const Call& call) const;

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::shared_ptr<FaultState> state_;
};

}  // namespace sumonce
