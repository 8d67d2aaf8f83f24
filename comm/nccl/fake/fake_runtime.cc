#include "comm/nccl/fake/fake_runtime.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "comm/nccl/fake/fake_cuda.h"
#include "comm/nccl/fake/fake_nccl.h"

namespace sumonce::nccl {

FakeRuntime::FakeRuntime(FakeOptions options)
    : state_(std::make_unique<FakeState>(options)),
      cuda_(std::make_unique<FakeCuda>(*state_)),
      nccl_(std::make_unique<FakeNccl>(*state_)) {}

FakeRuntime::~FakeRuntime() = default;

std::vector<std::string> FakeRuntime::Calls() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return {state_->calls().begin(), state_->calls().end()};
}

std::vector<std::string> FakeRuntime::Misuse() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->misuse();
}

std::vector<std::string> FakeRuntime::Leaks() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->Leaks();
}

absl::Status FakeRuntime::Verdict() const {
  const std::vector<std::string> misuse = Misuse();
  const std::vector<std::string> leaks = Leaks();
  if (misuse.empty() && leaks.empty()) return absl::OkStatus();
  std::string message = "fake_nccl: the transport broke the rules of CUDA or NCCL:";
  for (const std::string& line : misuse) absl::StrAppend(&message, "\n  ", line);
  for (const std::string& line : leaks) absl::StrAppend(&message, "\n  not given back: ", line);
  return absl::InternalError(message);
}

}  // namespace sumonce::nccl
