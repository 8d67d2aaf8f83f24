#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace sumonce {
namespace {

// '*' and '?' only. After a mismatch only the last '*' needs to take one more character: earlier
// ones could gain nothing by it. So the time is at most |pattern| * |name|.
bool WildcardMatches(std::string_view pattern, std::string_view name) {
  constexpr size_t kNone = std::string_view::npos;
  size_t p = 0, n = 0, star = kNone, star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != kNone) {
      p = star + 1;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

// A pattern's first brace group "head{alternatives}tail", or no alternatives if no brace has its
// partner.
struct BraceGroup {
  std::string_view head;
  std::vector<std::string_view> alternatives;
  std::string_view tail;
};

BraceGroup GroupAt(std::string_view pattern, size_t open) {
  BraceGroup group{.head = pattern.substr(0, open)};
  size_t begin = open + 1;
  int depth = 0;
  for (size_t i = open; i < pattern.size(); ++i) {
    if (pattern[i] == '{') ++depth;
    if (pattern[i] == '}') --depth;
    if (depth == 0 || (depth == 1 && pattern[i] == ',')) {
      group.alternatives.push_back(pattern.substr(begin, i - begin));
      begin = i + 1;
    }
    if (depth == 0) {
      group.tail = pattern.substr(i + 1);
      return group;
    }
  }
  return {};
}

BraceGroup FirstGroup(std::string_view pattern) {
  for (size_t open = pattern.find('{'); open != pattern.npos; open = pattern.find('{', open + 1)) {
    BraceGroup group = GroupAt(pattern, open);
    if (!group.alternatives.empty()) return group;
  }
  return {};
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
size_t EditDistance(std::string_view a, std::string_view b) {
  // Distances of three prefixes of a, the last two and the current, to all prefixes of b.
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({above[j] + (a[i] == b[j] ? 0 : 1), row[j] + 1, above[j + 1] + 1});
      const bool swapped = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (swapped) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

}  // namespace

bool GlobMatches(std::string_view pattern, std::string_view name) {
  const BraceGroup group = FirstGroup(pattern);
  if (group.alternatives.empty()) return WildcardMatches(pattern, name);
  return std::any_of(group.alternatives.begin(), group.alternatives.end(),
                     [&](std::string_view alternative) {
                       std::string expanded(group.head);
                       expanded.append(alternative).append(group.tail);
                       return GlobMatches(expanded, name);
                     });
}

std::string Closest(std::string_view word, const std::vector<std::string>& choices) {
  const std::string lower = Lower(word);
  std::string closest;
  size_t least = std::string::npos;
  for (const std::string& choice : choices) {
    const size_t near = std::max<size_t>(1, std::max(word.size(), choice.size()) / 3);
    const size_t distance = EditDistance(lower, Lower(choice));
    if (distance > near || distance >= least) continue;
    closest = choice;
    least = distance;
  }
  return closest;
}

std::string Printable(std::string_view text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= ' ' && byte != 0x7f) || c == '\n' || c == '\t') {
      printable += c;
    } else {
      printable.append("\\x").append(1, "0123456789abcdef"[byte >> 4]);
      printable += "0123456789abcdef"[byte & 15];
    }
  }
  return printable;
}

}  // namespace sumonce
