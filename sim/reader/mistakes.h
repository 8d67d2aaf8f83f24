// Where a reading collects the user's mistakes, so that all of a file are found at once.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sim/scenario_reader.h"

namespace sumonce {

// One reading's mistakes. At most 100 are kept, a file of garbage has no end of them. Not
// thread-safe.
class Mistakes {
 public:
  void Add(Location location, std::string message);
  bool empty() const { return found_.empty(); }
  // Whether one lies between the two places, ends included.
  bool Between(const Location& begin, const Location& end) const;
  // All of them once each, in the order of the file.
  std::vector<Mistake> Sorted() const;

 private:
  std::vector<Mistake> found_;
  int left_out_ = 0;
};

// "a, b or c", "a": for messages. At most `limit` names, then "...".
std::string OneOf(const std::vector<std::string>& names, size_t limit = 12);
// The names closest to a glob that matched none: those that share its last component, else the
// nearest by letters; " did you mean ...?" or "".
std::string DidYouMean(const std::string& word, const std::vector<std::string>& choices);

}  // namespace sumonce
