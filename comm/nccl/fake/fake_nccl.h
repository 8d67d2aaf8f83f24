// The NCCL table over the fake's state (comm/nccl/fake/fake_state.h).
#pragma once

#include "comm/nccl/fake/fake_state.h"

namespace sumonce::nccl {

class FakeNccl : public NcclApi {
 public:
  explicit FakeNccl(FakeState& state) : state_(state) {}

  int GetVersion(int* version) override;
  int GetUniqueId(UniqueId* out) override;
  int CommInitRankNonBlocking(Comm* out, int ranks, const UniqueId& id, int rank) override;
  int CommSplit(Comm comm, int color, int key, Comm* out) override;
  int CommGetAsyncError(Comm comm, int* result) override;
  int CommFinalize(Comm comm) override;
  int CommDestroy(Comm comm) override;
  int CommAbort(Comm comm) override;
  const char* GetErrorString(int code) override;
  const char* GetLastError() override { return ""; }
  int GroupStart() override;
  int GroupEnd() override;
  int AllReduce(const void* in, void* out, size_t count, NcclDataType type, NcclRedOp op, Comm comm,
                Stream stream) override;
  int ReduceScatter(const void* in, void* out, size_t count, NcclDataType type, NcclRedOp op,
                    Comm comm, Stream stream) override;
  int AllGather(const void* in, void* out, size_t count, NcclDataType type, Comm comm,
                Stream stream) override;
  int Broadcast(const void* in, void* out, size_t count, NcclDataType type, int root, Comm comm,
                Stream stream) override;
  int Send(const void* in, size_t count, NcclDataType type, int peer, Comm comm,
           Stream stream) override;
  int Recv(void* out, size_t count, NcclDataType type, int peer, Comm comm, Stream stream) override;

 private:
  // Adds the part to the thread's group; a group of its own outside of one.
  int Add(const char* call, const FakePart& part, Comm comm, Stream stream);
  int CloseGroup();
  void Touch(FakeComm& comm);

  FakeState& state_;
  int64_t ids_ = 0;
};

}  // namespace sumonce::nccl
