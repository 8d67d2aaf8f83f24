#include "capture/diff/files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"

namespace sumonce::diff {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 100000;

struct Side {
  std::map<std::string, SafetensorsReader*>
      files;  // by the path below the folder; a file alone: ""
};

absl::StatusOr<std::vector<std::string>> SafetensorsBelow(const std::string& dir) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator entry(dir, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().extension() != ".safetensors" || !entry->is_regular_file(ignored)) continue;
    found.push_back(entry->path().lexically_relative(dir).generic_string());
    if (found.size() > kMaxFiles) {
      return absl::InvalidArgumentError(absl::StrCat(dir, ": more than ", kMaxFiles,
                                                     " safetensors files below; name a folder ",
                                                     "with fewer"));
    }
  }
  if (error)
    return absl::UnavailableError(absl::StrCat(dir, ": cannot be read: ", error.message()));
  if (found.empty())
    return absl::NotFoundError(
        absl::StrCat(dir, ": no file named *.safetensors below this folder"));
  std::sort(found.begin(), found.end());
  return found;
}

absl::StatusOr<Side> OpenSide(const std::string& path, TensorPairs& pairs) {
  std::error_code ignored;
  std::vector<std::string> names = {""};
  if (fs::is_directory(path, ignored)) {
    SUMONCE_ASSIGN_OR_RETURN(names, SafetensorsBelow(path));
  }
  Side side;
  for (const std::string& name : names) {
    SUMONCE_ASSIGN_OR_RETURN(
        SafetensorsReader reader,
        SafetensorsReader::Open(name.empty() ? path : absl::StrCat(path, "/", name)));
    pairs.files.push_back(std::make_unique<SafetensorsReader>(std::move(reader)));
    side.files[name] = pairs.files.back().get();
  }
  return side;
}

bool NamesStandOnce(const Side& side) {
  std::set<std::string> names;
  for (const auto& [path, file] : side.files) {
    for (const auto& [name, info] : file->tensors()) {
      if (!names.insert(name).second) return false;
    }
  }
  return true;
}

using Tensors = std::map<std::string, TensorRef>;  // by the name in reports

void AddTensors(const SafetensorsReader& file, const std::string& prefix, const std::string& filter,
                Tensors& tensors) {
  for (const auto& [name, info] : file.tensors()) {
    if (GlobMatches(filter, name)) tensors[prefix + name] = {&file, name, info};
  }
}

void Pair(const Tensors& of_a, const Tensors& of_b, TensorPairs& pairs) {
  for (const auto& [name, tensor] : of_a) {
    const auto other = of_b.find(name);
    if (other == of_b.end()) {
      pairs.only_a.push_back(name);
    } else {
      pairs.pairs.push_back({name, tensor, other->second});
    }
  }
  for (const auto& [name, tensor] : of_b) {
    if (!of_a.contains(name)) pairs.only_b.push_back(name);
  }
}

}  // namespace

absl::StatusOr<TensorPairs> PairTensors(const std::string& a, const std::string& b,
                                        const std::string& filter) {
  std::error_code ignored;
  if (fs::exists(a, ignored) && fs::exists(b, ignored) &&
      fs::is_directory(a, ignored) != fs::is_directory(b, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat(a, " and ", b, ": one is a folder, the other a file; name two of a kind"));
  }
  TensorPairs pairs;
  SUMONCE_ASSIGN_OR_RETURN(const Side side_a, OpenSide(a, pairs));
  SUMONCE_ASSIGN_OR_RETURN(const Side side_b, OpenSide(b, pairs));
  const bool by_name = NamesStandOnce(side_a) && NamesStandOnce(side_b);
  Tensors of_a, of_b;
  for (const auto& [path, file] : side_a.files) {
    if (!by_name && !side_b.files.contains(path)) {
      pairs.files_only_a.push_back(path);
      continue;
    }
    AddTensors(*file, by_name ? "" : path + ": ", filter, of_a);
  }
  for (const auto& [path, file] : side_b.files) {
    if (!by_name && !side_a.files.contains(path)) {
      pairs.files_only_b.push_back(path);
      continue;
    }
    AddTensors(*file, by_name ? "" : path + ": ", filter, of_b);
  }
  Pair(of_a, of_b, pairs);
  return pairs;
}

}  // namespace sumonce::diff
