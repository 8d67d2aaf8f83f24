#include "capture/diff/files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"

namespace sumonce::diff {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 100000;

struct Side {
  std::map<std::string, SafetensorsReader*>
      files;                       // by the path below the folder; a file alone: ""
  std::set<std::string> unusable;  // such paths
};

// What is named *.safetensors below a folder, in order; links to folders are followed once.
class FolderWalk {
 public:
  explicit FolderWalk(std::string dir) : dir_(std::move(dir)) {}

  absl::StatusOr<std::vector<std::string>> Walk(std::vector<std::string>& unusable) {
    SUMONCE_RETURN_IF_ERROR(Enter(dir_, unusable));
    if (found_.empty() && unusable.empty()) {
      return absl::NotFoundError(
          absl::StrCat(dir_, ": no file named *.safetensors below this folder"));
    }
    std::sort(found_.begin(), found_.end());
    return std::move(found_);
  }

 private:
  absl::Status Enter(const fs::path& folder, std::vector<std::string>& unusable) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    if (!error && !seen_.insert(real).second) return absl::OkStatus();
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      if (entry->is_directory(ignored)) {
        SUMONCE_RETURN_IF_ERROR(Enter(entry->path(), unusable));
      } else if (entry->path().extension() == ".safetensors") {
        found_.push_back(entry->path().lexically_relative(dir_).generic_string());
      }
      if (found_.size() > kMaxFiles) {
        return absl::InvalidArgumentError(absl::StrCat(dir_, ": more than ", kMaxFiles,
                                                       " safetensors files below; name a folder ",
                                                       "with fewer"));
      }
    }
    if (error)
      unusable.push_back(absl::StrCat(folder.string(), ": cannot be listed: ", error.message()));
    return absl::OkStatus();
  }

  std::string dir_;
  std::set<fs::path> seen_;
  std::vector<std::string> found_;
};

// A file by itself has to be readable; of a folder's, those that are not are named.
absl::StatusOr<Side> OpenSide(const std::string& path, TensorPairs& pairs) {
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  std::vector<std::string> names = {""}, unusable;
  if (folder) {
    SUMONCE_ASSIGN_OR_RETURN(names, FolderWalk(path).Walk(unusable));
  }
  Side side;
  for (const std::string& name : names) {
    absl::StatusOr<SafetensorsReader> reader =
        SafetensorsReader::Open(folder ? absl::StrCat(path, "/", name) : path);
    if (reader.ok()) {
      pairs.files.push_back(std::make_unique<SafetensorsReader>(*std::move(reader)));
      side.files[name] = pairs.files.back().get();
    } else if (folder) {
      unusable.emplace_back(reader.status().message());
      side.unusable.insert(name);
    } else {
      return reader.status();
    }
  }
  if (side.files.empty()) return absl::InvalidArgumentError(absl::StrJoin(unusable, "\n"));
  pairs.unusable.insert(pairs.unusable.end(), unusable.begin(), unusable.end());
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
    if (side_b.unusable.contains(path)) continue;  // said already
    if (!by_name && !side_b.files.contains(path)) {
      pairs.files_only_a.push_back(path);
      continue;
    }
    AddTensors(*file, by_name ? "" : path + ": ", filter, of_a);
  }
  for (const auto& [path, file] : side_b.files) {
    if (side_a.unusable.contains(path)) continue;
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
