#include "capture/folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

namespace fs = std::filesystem;

// The number in "<prefix>NNN<suffix>", if the name has that form.
std::optional<int64_t> NumberIn(const std::string& name, std::string_view prefix,
                                std::string_view suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) ||
      name.size() <= prefix.size() + suffix.size())
    return std::nullopt;
  const std::string digits =
      name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  int64_t number = 0;
  const bool all_digits = digits.find_first_not_of("0123456789") == digits.npos;
  if (!all_digits || !absl::SimpleAtoi(digits, &number)) return std::nullopt;
  return number;
}

std::optional<int64_t> RankIn(const std::string& name) {
  const std::optional<int64_t> rank = NumberIn(name, "rank-", ".safetensors");
  return rank ? rank : NumberIn(name, "rank-", ".json");
}

// Names in a folder, sorted.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot be listed"));
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<StepFolder> ListStep(const std::string& path, int64_t step) {
  StepFolder folder{.step = step, .path = path, .ranks = {}};
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
  for (const std::string& name : names) {
    const std::optional<int64_t> rank = RankIn(name);
    if (!rank) continue;
    if (*rank >= (1 << 20))
      return absl::InvalidArgumentError(absl::StrCat(path, "/", name, ": no rank is that high"));
    folder.ranks.push_back({.rank = static_cast<int>(*rank), .path = path + "/" + name});
  }
  std::stable_sort(folder.ranks.begin(), folder.ranks.end(),
                   [](const RankFile& a, const RankFile& b) { return a.rank < b.rank; });
  for (size_t i = 1; i < folder.ranks.size(); ++i) {
    if (folder.ranks[i].rank == folder.ranks[i - 1].rank) {
      return absl::InvalidArgumentError(absl::StrCat(folder.ranks[i - 1].path, " and ",
                                                     folder.ranks[i].path,
                                                     " are one rank; take one of them away"));
    }
  }
  return folder;
}

}  // namespace

absl::StatusOr<std::vector<StepFolder>> ListCapture(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return absl::NotFoundError(absl::StrCat(path, ": no such folder"));
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot be read"));
  if (!fs::is_directory(status))
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no folder, expected a capture"));
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
  std::vector<StepFolder> steps;
  bool has_ranks = false;
  for (const std::string& name : names) {
    has_ranks |= RankIn(name).has_value();
    const std::optional<int64_t> step = NumberIn(name, "step-", "");
    if (!step) continue;
    SUMONCE_ASSIGN_OR_RETURN(StepFolder folder, ListStep(path + "/" + name, *step));
    if (!folder.ranks.empty()) steps.push_back(std::move(folder));
  }
  if (steps.empty() && has_ranks) {
    std::string own = fs::path(path).lexically_normal().filename().string();
    if (own.empty()) own = fs::path(path).lexically_normal().parent_path().filename().string();
    SUMONCE_ASSIGN_OR_RETURN(StepFolder folder,
                             ListStep(path, NumberIn(own, "step-", "").value_or(1)));
    steps.push_back(std::move(folder));
  }
  if (steps.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": holds no step-NNNN/rank-NNNNN.safetensors; is it a capture? "
                     "docs/capture-format.md says how one is written"));
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const StepFolder& a, const StepFolder& b) { return a.step < b.step; });
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].step == steps[i - 1].step) {
      return absl::InvalidArgumentError(absl::StrCat(steps[i - 1].path, " and ", steps[i].path,
                                                     " are one step; take one of them away"));
    }
  }
  return steps;
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t max_bytes) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot be read"));
  if (!fs::is_regular_file(status))
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  const uintmax_t bytes = fs::file_size(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot be read"));
  if (bytes > static_cast<uintmax_t>(max_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", bytes, " bytes; expected at most ", max_bytes));
  }
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace sumonce::capture
