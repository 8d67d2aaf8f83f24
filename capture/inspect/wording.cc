#include "capture/inspect/wording.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sumonce::inspect {

std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3, kLongest = 200;
  std::string text;
  const size_t shown = names.size() <= kShown + 1 ? names.size() : kShown;
  for (size_t i = 0; i < shown; ++i) {
    const char* between = i == 0 ? "" : i + 1 == names.size() ? " and " : ", ";
    absl::StrAppend(&text, between, absl::Utf8SafeCEscape(names[i].substr(0, kLongest)));
  }
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

std::string Figure(double value) { return absl::StrFormat("%.4g", value); }

}  // namespace sumonce::inspect
