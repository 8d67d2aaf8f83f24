// Scenario files below files and directories, with their names.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "sim/reader/mistakes.h"
#include "sim/scenario_reader.h"

namespace sumonce {
namespace {

namespace fs = std::filesystem;

constexpr char kExtension[] = ".textproto";

// "area/file": the path below the nearest directory "scenarios", else the last directory and the
// file.
std::string NameOf(const fs::path& path) {
  std::error_code ignored;
  fs::path whole = fs::absolute(path, ignored).lexically_normal();
  if (whole.extension() == kExtension) whole.replace_extension();
  std::vector<std::string> parts;
  for (const fs::path& part : whole) parts.push_back(part.string());
  size_t first = parts.size() >= 2 ? parts.size() - 2 : 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i] == "scenarios") first = i + 1;
  }
  std::string name;
  for (size_t i = first; i < parts.size(); ++i) {
    if (parts[i] == "/") continue;
    name += (name.empty() ? "" : "/") + parts[i];
  }
  return name;
}

void AddMistake(const fs::path& path, std::string message, std::vector<Mistake>& mistakes) {
  mistakes.push_back({.location = {.file = path.string()}, .message = std::move(message)});
}

// Links to directories are not followed: no loops, and nothing twice.
void SearchDirectory(const fs::path& directory, std::vector<fs::path>& found,
                     std::vector<Mistake>& mistakes) {
  std::error_code error;
  fs::recursive_directory_iterator entry(directory, error);
  while (!error && entry != fs::recursive_directory_iterator()) {
    std::error_code unreadable;
    if (entry->path().extension() == kExtension && !entry->is_directory(unreadable)) {
      found.push_back(entry->path());
    }
    entry.increment(error);
  }
  if (error) AddMistake(directory, "cannot be searched: " + error.message(), mistakes);
}

// What stands beside a path that is not there.
std::string Suggestion(const fs::path& path) {
  std::map<std::string, std::string> beside;  // without and with extension
  std::vector<std::string> stems;
  std::error_code error;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (fs::directory_iterator entry(parent, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const fs::path name = entry->path().filename();
    beside[name.stem().string()] = name.string();
  }
  for (const auto& [stem, name] : beside) stems.push_back(stem);
  const std::string near = Closest(path.stem().string(), stems);
  if (near.empty()) return "";
  return absl::StrCat("; did you mean \"", (path.parent_path() / beside[near]).string(), "\"?");
}

}  // namespace

std::vector<ScenarioFile> FindScenarios(const std::vector<std::string>& paths,
                                        std::vector<Mistake>& mistakes) {
  std::vector<fs::path> found;
  for (const std::string& given : paths) {
    std::error_code error;
    const fs::path path(given);
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) {
      SearchDirectory(path, found, mistakes);
    } else if (fs::exists(status)) {
      found.push_back(path);
    } else {
      AddMistake(
          path,
          absl::StrCat("cannot be read: ", error ? error.message() : "No such file or directory",
                       ", expected a scenario file or a directory of them", Suggestion(path)),
          mistakes);
    }
  }
  std::set<std::string> seen;
  std::vector<ScenarioFile> files;
  for (const fs::path& path : found) {
    std::error_code error;
    const fs::path canonical = fs::weakly_canonical(path, error);
    if (!seen.insert(error ? path.string() : canonical.string()).second) continue;
    files.push_back({.path = path.string(), .name = NameOf(path)});
  }
  std::sort(files.begin(), files.end(), [](const ScenarioFile& a, const ScenarioFile& b) {
    return std::tie(a.name, a.path) < std::tie(b.name, b.path);
  });
  return files;
}

}  // namespace sumonce
