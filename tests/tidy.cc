#include "tests/tidy.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

namespace sumonce::tidy {
namespace {

constexpr int kMaxFileLines = 500;
constexpr int kMaxFunctionLines = 80;

// Position in the include direction; folders of one position do not see each other.
const std::map<std::string, int>& Positions() {
  static const auto& positions = *new std::map<std::string, int>{
      {"base", 0},   {"proto", 0}, {"comm", 1},  {"spmd", 2},    {"layers", 3}, {"sim", 4},
      {"verify", 5}, {"cost", 6},  {"trace", 6}, {"capture", 6}, {"report", 7}, {"cli", 8}};
  return positions;
}

std::string Folder(std::string_view path) {
  return std::string(path.substr(0, path.find('/') == path.npos ? 0 : path.find('/')));
}

bool IsHeader(const File& file) { return file.path.ends_with(".h"); }
bool IsCpp(const File& file) {
  return IsHeader(file) || file.path.ends_with(".cc") || file.path.ends_with(".cu");
}
bool IsTest(const File& file) {
  return file.path.ends_with("_test.cc") || file.path.starts_with("tests/");
}

std::vector<std::string> Lines(const File& file) {
  std::vector<std::string> lines;
  std::istringstream stream(file.text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

struct Include {
  int line = 0;
  std::string path;
};

// The quoted includes: our own headers and Abseil's.
std::vector<Include> Includes(const File& file) {
  static const auto& pattern = *new std::regex(R"re(^\s*#\s*include\s+"([^"]+)")re");
  std::vector<Include> includes;
  const std::vector<std::string> lines = Lines(file);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (std::regex_search(lines[i], match, pattern))
      includes.push_back({static_cast<int>(i) + 1, match[1]});
  }
  return includes;
}

std::string At(const File& file, int line, const std::string& message) {
  return file.path + ":" + std::to_string(line) + ": " + message;
}

// Adds a breach for each line that the pattern finds.
void Forbid(const File& file, const std::string& pattern, const std::string& message,
            Breaches& breaches) {
  const std::regex regex(pattern);
  const std::vector<std::string> lines = Lines(file);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (!std::regex_search(lines[i], match, regex)) continue;
    breaches.push_back(At(file, static_cast<int>(i) + 1, "'" + match.str() + "': " + message));
  }
}

void Append(Breaches more, Breaches& breaches) {
  breaches.insert(breaches.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

}  // namespace

Breaches CheckAll(const File& file) {
  Breaches breaches;
  for (auto* check :
       {CheckIncludeDirection, CheckTransportsArePrivate, CheckProtobufStaysInside, CheckHeaderForm,
        CheckLengths, CheckDeterminism, CheckText, CheckScenarioForm}) {
    Append(check(file), breaches);
  }
  return breaches;
}

Breaches CheckIncludeDirection(const File& file) {
  Breaches breaches;
  const std::string own = Folder(file.path);
  const auto own_position = Positions().find(own);
  if (!IsCpp(file) || own_position == Positions().end()) return breaches;
  for (const Include& include : Includes(file)) {
    const std::string other = Folder(include.path);
    const auto position = Positions().find(other);
    if (position == Positions().end() || other == own) continue;
    if (position->second < own_position->second) continue;
    breaches.push_back(
        At(file, include.line,
           own + " includes " + include.path + ", but " + other +
               " is not left of it in base, proto <- comm <- spmd <- layers <- sim <- verify <- "
               "trace, capture <- report <- cli"));
  }
  return breaches;
}

Breaches CheckTransportsArePrivate(const File& file) {
  static const auto& pattern = *new std::regex("^(comm/[a-z0-9_]+/)");
  Breaches breaches;
  if (!IsCpp(file) || IsTest(file) || file.path.starts_with("bench/")) return breaches;
  for (const Include& include : Includes(file)) {
    std::smatch match;
    if (!std::regex_search(include.path, match, pattern) || file.path.starts_with(match.str()))
      continue;
    breaches.push_back(
        At(file, include.line,
           "includes " + include.path + "; ask the registry in comm/transport.h instead"));
  }
  return breaches;
}

Breaches CheckProtobufStaysInside(const File& file) {
  static const auto& converting =
      *new std::set<std::string>{"sim", "capture", "trace", "report", "cli", "tests"};
  Breaches breaches;
  if (!IsCpp(file)) return breaches;
  for (const Include& include : Includes(file)) {
    if (!include.path.ends_with(".pb.h")) continue;
    if (IsHeader(file)) {
      breaches.push_back(At(file, include.line,
                            include.path + " in a header; convert to a plain struct in the .cc"));
    } else if (!converting.contains(Folder(file.path)) && !IsTest(file)) {
      breaches.push_back(
          At(file, include.line, include.path + " in a folder that works on plain structs"));
    }
  }
  return breaches;
}

Breaches CheckHeaderForm(const File& file) {
  Breaches breaches;
  if (!IsHeader(file)) return breaches;
  if (!file.text.starts_with("//")) {
    breaches.push_back(
        At(file, 1, "a header opens with a comment: what it is, who may call, what it promises"));
  }
  if (file.text.find("\n#pragma once\n") == std::string::npos)
    breaches.push_back(At(file, 1, "no #pragma once"));
  return breaches;
}

// A function, as clang-format leaves it, opens on a line that starts in the first column and ends
// with '{', and closes with a lone '}'; classes close with '};' and namespaces with a comment.
Breaches CheckLengths(const File& file) {
  Breaches breaches;
  if (!IsCpp(file) && !file.path.ends_with(".py") && !file.path.ends_with(".cmake"))
    return breaches;
  const std::vector<std::string> lines = Lines(file);
  const int count = static_cast<int>(lines.size());
  if (count > kMaxFileLines) {
    breaches.push_back(
        At(file, 1, std::to_string(count) + " lines, more than 500; split it by what it holds"));
  }
  int open = 0;
  for (int i = 1; i <= count && IsCpp(file); ++i) {
    const std::string& line = lines[i - 1];
    if (line == "}" && open > 0) {
      const int length = i - open + 1;
      if (length > kMaxFunctionLines) {
        breaches.push_back(
            At(file, open, "a function of " + std::to_string(length) + " lines, more than 80"));
      }
      open = 0;
    } else if (!line.empty() && line[0] != ' ' && line[0] != '}' &&
               line.find("namespace") == line.npos) {
      if (open == 0) open = i;
      if (line.ends_with(';')) open = 0;
    } else if (line == "};") {
      open = 0;
    }
  }
  return breaches;
}

Breaches CheckDeterminism(const File& file) {
  static const auto& computing =
      *new std::set<std::string>{"base", "comm", "spmd", "layers", "sim", "verify"};
  Breaches breaches;
  if (!IsCpp(file) || IsTest(file) || !computing.contains(Folder(file.path))) return breaches;
  Forbid(file,
         R"(\bstd::(exp|exp2|expm1|log|log1p|log2|log10|sin|cos|tan|tanh|pow|erf|cbrt|hypot)\()",
         "libm's bits differ by CPU and version; use base/math.h", breaches);
  Forbid(file, R"(#include <(random|ctime)>|\bs?rand\(|std::random_device)",
         "numbers come from base/random.h, keyed by (seed, name, index)", breaches);
  Forbid(file, R"(std::hash<|std::unordered_(map|set)<[^,>]*\*)",
         "no result may depend on a hash or an address", breaches);
  Forbid(file, R"(absl::(Mutex|Notification|BlockingCounter)\b)",
         "gives false ThreadSanitizer reports; use std", breaches);
  Forbid(file, R"(std::(reduce|transform_reduce|execution::))", "promises no order of its sums",
         breaches);
  if (Folder(file.path) != "verify")
    Forbid(file, "#include <chrono>", "no clock in a result", breaches);
  return breaches;
}

Breaches CheckText(const File& file) {
  Breaches breaches;
  Forbid(file, std::string(R"(\b(TO)") + R"(DO|FIX)" + R"(ME|XX)" + R"(X|HA)" + R"(CK)\b)",
         "unfinished; finish it, or say in prose what is not done", breaches);
  Forbid(file, std::string("/(ho") + "me|Us" + "ers)/[a-z]|/ro" + "ot/", "a path of one machine",
         breaches);
  Forbid(file, "\t", "a tab", breaches);
  Forbid(file, "[ \r]$", "trailing blank", breaches);
  if (!file.text.empty() && !file.text.ends_with('\n'))
    breaches.push_back(At(file, 1, "no newline at its end"));
  return breaches;
}

Breaches CheckScenarioForm(const File& file) {
  constexpr std::string_view kOpening =
      "# proto-file: proto/scenario.proto\n# proto-message: sumonce.proto.Scenario\n# ";
  Breaches breaches;
  if (!file.path.starts_with("scenarios/") || !file.path.ends_with(".textproto")) return breaches;
  if (!file.text.starts_with(kOpening)) {
    breaches.push_back(At(file, 1,
                          "opens with '# proto-file: proto/scenario.proto', '# proto-message: "
                          "sumonce.proto.Scenario' and a comment that says the idea"));
  }
  return breaches;
}

std::vector<std::string> Headings(const File& file) {
  static const auto& pattern = *new std::regex("^#+ (.*)$");
  std::vector<std::string> places;
  if (!file.path.ends_with(".md")) return places;
  places.push_back(file.path);
  for (const std::string& line : Lines(file)) {
    std::smatch match;
    if (std::regex_match(line, match, pattern))
      places.push_back(file.path + " \"" + match[1].str() + "\"");
  }
  return places;
}

Breaches CheckCitations(const File& file, const std::set<std::string>& places) {
  // A heading may be broken over two lines of comment.
  static const auto& pattern = *new std::regex(R"re((docs/[A-Z]+\.md)(,?[\s/]+"([A-Z][^"]*)")?)re");
  static const auto& line_break = *new std::regex(R"(\s*\n\s*//\s*)");
  Breaches breaches;
  if ((!IsCpp(file) || IsTest(file)) && !file.path.ends_with(".proto")) return breaches;
  for (auto match = std::sregex_iterator(file.text.begin(), file.text.end(), pattern);
       match != std::sregex_iterator(); ++match) {
    std::string place = match->str(1);
    if (match->length(3) > 0)
      place += " \"" + std::regex_replace(match->str(3), line_break, " ") + "\"";
    if (places.contains(place)) continue;
    const auto begin = file.text.begin();
    const int line = 1 + static_cast<int>(std::count(begin, begin + match->position(), '\n'));
    breaches.push_back(At(file, line, "cites " + place + ", which does not exist"));
  }
  return breaches;
}

}  // namespace sumonce::tidy
