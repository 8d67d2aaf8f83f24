// One line on a terminal that says what is running now.
#pragma once

#include <chrono>
#include <ostream>
#include <string>

namespace sumonce {

// Redraws at most ten times a second and leaves nothing behind. Off: does nothing.
class ProgressLine {
 public:
  ProgressLine(std::ostream& out, bool on) : out_(out), on_(on) {}
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // "[3/40] lora/row_flag_missing"
  void Show(size_t index, size_t count, const std::string& name);
  // Before anything else is written to the same terminal.
  void Clear();

 private:
  std::ostream& out_;
  bool on_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_ = {};
};

}  // namespace sumonce
