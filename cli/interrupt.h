// SIGINT and SIGTERM as a question: has the user asked to stop?
#pragma once

namespace sumonce {

// While one lives, the first of these signals is noted and the second ends the process. A signal
// that was ignored before stays so. One at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool Interrupted() const;
};

}  // namespace sumonce
