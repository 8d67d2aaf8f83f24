#include "cli/progress.h"

namespace sumonce {
namespace {

constexpr std::chrono::milliseconds kRedrawPeriod{100};
constexpr size_t kMaxWidth = 79;  // a line that wraps could not be erased
constexpr char kEraseLine[] = "\r\033[K";

}  // namespace

void ProgressLine::Show(size_t index, size_t count, const std::string& name) {
  const auto now = std::chrono::steady_clock::now();
  if (!on_ || now - last_ < kRedrawPeriod) return;
  const std::string line = "[" + std::to_string(index) + "/" + std::to_string(count) + "] " + name;
  out_ << kEraseLine << line.substr(0, kMaxWidth) << std::flush;
  last_ = now;
  shown_ = true;
}

void ProgressLine::Clear() {
  if (!shown_) return;
  out_ << kEraseLine << std::flush;
  shown_ = false;
}

}  // namespace sumonce
