// A wire of one process, for tests: what arrives is what the test puts in, and what the process
// sends itself; a native reduction takes as long as the test says.
#pragma once

#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/mpi/clock.h"
#include "comm/mpi/wire.h"

namespace sumonce {

// Of one process: out is in.
class SlowReduction : public NativeReduction {
 public:
  SlowReduction(const Call& call, double seconds) : call_(call), until_(SecondsNow() + seconds) {}
  bool Done() override {
    if (SecondsNow() < until_) return false;
    std::memmove(call_.out.data, call_.in.data, call_.out.bytes());
    return true;
  }

 private:
  Call call_;
  double until_;
};

class ScriptedWire : public Wire {
 public:
  explicit ScriptedWire(std::deque<std::string>& arriving, double reduction_s = 0)
      : arriving_(arriving), reduction_s_(reduction_s) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void Send(int, std::string bytes) override { arriving_.push_back(std::move(bytes)); }
  std::optional<Message> Receive() override {
    if (arriving_.empty()) return std::nullopt;
    Message message{.from = 0, .bytes = std::move(arriving_.front())};
    arriving_.pop_front();
    return message;
  }
  bool AllSent() override { return true; }
  const std::string& error() const override { return error_; }
  int MakeGroup(const std::string&, const std::vector<int>&) override { return 0; }
  std::unique_ptr<NativeReduction> Reduce(int, const Call& call) override {
    return std::make_unique<SlowReduction>(call, reduction_s_);
  }
  void Finalize() override {}
  void Abort(int status) override { _exit(status); }

 private:
  std::deque<std::string>& arriving_;
  double reduction_s_;
  std::string error_;
};

}  // namespace sumonce
