// The data plane of ranks on devices, all driven by this process: one device, stream and NCCL
// communicator per rank.
//
// Which thread moves a call does not matter: it enters the call on all of its ranks' devices in one
// NCCL group, and one call at a time. So all devices see all calls of all groups in the same order
// (two communicators whose kernels start in other orders on two devices can block each other), no
// rank's progress hangs on another's thread, and a rank's buffers serve one call at a time.
//
// The first error breaks the plane: every communicator is aborted, every later call returns that
// error. Every wait ends by the time limit.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/nccl/data_plane.h"
#include "comm/nccl/device_collective.h"
#include "comm/nccl/group_state.h"
#include "comm/transport.h"

namespace sumonce::nccl {

struct PlaneOptions {
  std::string transport;  // its name, for properties and messages
  bool native_sums = false;
  int64_t time_limit_us = 60'000'000;  // of each wait
  bool share_devices = false;          // more ranks than devices are dealt out round robin
};

class NcclPlane : public DataPlane {
 public:
  NcclPlane(Api api, PlaneOptions options) : api_(api), options_(std::move(options)) {}

  // Devices, streams and communicators of the world. ResourceExhausted: too few devices.
  absl::Status Open(GroupState& world);
  // After all ranks have ended and all groups are gone: gives everything back.
  absl::Status Close();

  Communicator::Properties properties() const override;
  std::unique_ptr<Transfer> Prepare(const MatchedCall& call) override;

 private:
  class PieceTransfer;
  class SplitTransfer;
  class GroupComms;
  // NCCL writes `comm` when it is ready to: it keeps its address until it is aborted or destroyed.
  struct LiveComm {
    Comm comm = nullptr;
    int world_rank = 0;
  };
  Comm& NewComm(const DeviceRank& rank);

  absl::Status Move(const MatchedCall& call, int64_t piece);
  absl::Status Split(const MatchedCall& call);
  absl::Status OpenLocked(GroupState& world);
  absl::Status InitComms(GroupState& world);
  absl::Status SplitLocked(const MatchedCall& call);
  void Adopt(GroupState& group, std::vector<Comm> comms);
  absl::Status Destroy(std::span<const Member> members);
  void Release(const GroupState& group, const std::vector<Comm>& comms);
  std::vector<Member> MembersOf(const MatchedCall& call);
  // Breaks the plane with what happened during `what`, if something did.
  absl::Status Outcome(absl::Status status, const std::string& what);
  WaitLimits limits() const { return {.time_limit_us = options_.time_limit_us}; }
  CollectiveOptions OptionsFor(const GroupState& group) const;

  const Api api_;
  const PlaneOptions options_;
  std::mutex mutex_;
  absl::Status broken_;
  std::vector<std::unique_ptr<DeviceRank>> ranks_;  // of the world
  std::list<LiveComm> live_;                        // parents before their children
};

// Transport::run over devices of this process.
absl::Status RunOnDevices(Api api, const PlaneOptions& plane, const RunOptions& options,
                          const RankBody& body);

}  // namespace sumonce::nccl
