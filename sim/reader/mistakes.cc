#include "sim/reader/mistakes.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace sumonce {
namespace {

constexpr size_t kMaxMistakes = 100;

std::pair<int, int> Place(const Location& location) { return {location.line, location.column}; }

}  // namespace

void Mistakes::Add(Location location, std::string message) {
  if (found_.size() == kMaxMistakes) {
    ++left_out_;
    return;
  }
  found_.push_back({std::move(location), std::move(message)});
}

bool Mistakes::Between(const Location& begin, const Location& end) const {
  return std::any_of(found_.begin(), found_.end(), [&](const Mistake& mistake) {
    return Place(begin) <= Place(mistake.location) && Place(mistake.location) <= Place(end);
  });
}

std::vector<Mistake> Mistakes::Sorted() const {
  std::vector<Mistake> sorted = found_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) {
    return Place(a.location) < Place(b.location);
  });
  const auto same = [](const Mistake& a, const Mistake& b) {
    return Place(a.location) == Place(b.location) && a.message == b.message;
  };
  sorted.erase(std::unique(sorted.begin(), sorted.end(), same), sorted.end());
  if (left_out_ > 0) {
    sorted.push_back(
        {sorted.back().location,
         std::to_string(left_out_) + " more mistakes are not listed; mend these first"});
  }
  return sorted;
}

std::string OneOf(const std::vector<std::string>& names, size_t limit) {
  std::string text;
  const size_t shown = std::min(names.size(), limit);
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return shown < names.size() ? text + ", ..." : text;
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& choices) {
  const std::string near = Closest(word, choices);
  return near.empty() ? "" : "; did you mean \"" + near + "\"?";
}

}  // namespace sumonce
