// How statuses and calls travel between the processes of one run: numbers of eight bytes and texts
// with their length, all processes being of one build on one kind of machine.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"

namespace sumonce::nccl {

class Writer {
 public:
  Writer& Number(int64_t value);
  Writer& Text(const std::string& text);
  Writer& Status(const absl::Status& status);  // code, message, kind of run failure
  Writer& Header(const Call& call);            // all but the pointers
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

// A message that is too short reads as zeros and empty texts from there on, and ok() is false.
class Reader {
 public:
  explicit Reader(std::string message) : message_(std::move(message)) {}
  int64_t Number();
  std::string Text();
  absl::Status Status();
  Call Header();
  bool ok() const { return ok_; }
  bool at_end() const { return !ok_ || next_ == message_.size(); }

 private:
  std::string message_;
  size_t next_ = 0;
  bool ok_ = true;
};

}  // namespace sumonce::nccl
