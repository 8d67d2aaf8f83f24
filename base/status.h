// Status helpers and the check for our own broken invariants (docs/ARCHITECTURE.md, "Errors").
//
// SUMONCE_CHECK(condition) << "rank " << rank;   aborts with place, condition and message: our own
// fault, never the user's. A user's mistake is an absl::Status that names place, value, expectation
// and cure.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sumonce {

// Debian's Abseil has its own string_view: this is the one place where the two meet.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view FromAbsl(absl::string_view text) { return {text.data(), text.size()}; }

namespace internal {

// Collects the message and aborts at the end of the full expression.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

// Gives both branches of a check the type void; binds looser than <<.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace internal
}  // namespace sumonce

#define SUMONCE_CHECK(condition)                 \
  (condition) ? static_cast<void>(0)             \
              : ::sumonce::internal::Voidify() & \
                    ::sumonce::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define SUMONCE_RETURN_IF_ERROR(expression)                                 \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define SUMONCE_CONCAT_INNER(a, b) a##b
#define SUMONCE_CONCAT(a, b) SUMONCE_CONCAT_INNER(a, b)
#define SUMONCE_ASSIGN_OR_RETURN(lhs, expression) \
  SUMONCE_ASSIGN_OR_RETURN_IMPL(SUMONCE_CONCAT(statusor_, __LINE__), lhs, expression)
#define SUMONCE_ASSIGN_OR_RETURN_IMPL(statusor, lhs, expression) \
  auto statusor = (expression);                                  \
  if (!statusor.ok()) return statusor.status();                  \
  lhs = *std::move(statusor)
