// SIGINT and SIGTERM as a question: has the user asked to stop?
#pragma once

namespace sumonce {

// While one lives, the first of these signals is noted (SIGINT's sender is told so at once) and the
// second, whichever it is, ends the process as if nobody looked at it: a shell sees 128 plus its
// number. A signal that was ignored before stays so. One at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool Interrupted() const;
};

}  // namespace sumonce
