// CUDA and NCCL on host memory: devices that are not there, for tests and for looking at the NCCL
// transport's behaviour where there is no GPU. Collectives give right results, by NCCL's own rules;
// what breaks a rule of CUDA or NCCL is noted (Misuse), and so is what is not given back (Leaks).
//
// Noted are: pointers of the wrong kind, device or size, or freed; freeing what is in use; streams,
// communicators and groups used before, after or beside what they are for; collectives that differ
// between ranks. Calls can be made to fail, and devices to be stuck (FakeOptions). Pauses take no
// time unless they are asked to.
//
// Thread-safe. One per run: the tables must outlive it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/nccl/api.h"
#include "comm/nccl/fake/fake_state.h"

namespace sumonce::nccl {

class FakeRuntime {
 public:
  explicit FakeRuntime(FakeOptions options = {});
  ~FakeRuntime();

  Api api() const { return {*cuda_, *nccl_}; }
  // "cudaMalloc", ... in the order in which they were called, with FakeOptions::record_calls; what
  // only tells a version or the name of a code does not count.
  std::vector<std::string> Calls() const;
  std::vector<std::string> Misuse() const;
  std::vector<std::string> Leaks() const;
  // OK, or Internal with all misuse and leaks.
  absl::Status Verdict() const;

 private:
  std::unique_ptr<FakeState> state_;
  std::unique_ptr<CudaApi> cuda_;
  std::unique_ptr<NcclApi> nccl_;
};

}  // namespace sumonce::nccl
