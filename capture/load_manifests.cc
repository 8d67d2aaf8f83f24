#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/folder.h"
#include "capture/json_fields.h"
#include "capture/manifest.h"

namespace sumonce::capture {
namespace {

absl::StatusOr<Manifest> OfSafetensors(const std::string& path) {
  SUMONCE_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(path));
  return ParseManifest(reader.metadata(), path);
}

// One object, or a list of them.
absl::StatusOr<std::vector<Manifest>> OfJson(const std::string& path) {
  SUMONCE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxJsonBytes));
  const size_t first = text.find_first_not_of(" \t\r\n");
  std::vector<Manifest> manifests;
  if (first == text.npos || text[first] != '[') {
    SUMONCE_ASSIGN_OR_RETURN(Manifest manifest, ParseManifestJson(text, path));
    manifests.push_back(std::move(manifest));
    return manifests;
  }
  Problems problems(path);
  const std::optional<nlohmann::json> list = ParseJson(text, "", problems);
  SUMONCE_RETURN_IF_ERROR(problems.ToStatus());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string object =
        (*list)[i].dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    SUMONCE_ASSIGN_OR_RETURN(Manifest manifest,
                             ParseManifestJson(object, absl::StrCat(path, "[", i, "]")));
    manifests.push_back(std::move(manifest));
  }
  if (manifests.empty())
    return absl::InvalidArgumentError(absl::StrCat(path, ": an empty list; expected a manifest"));
  return manifests;
}

absl::StatusOr<std::vector<Manifest>> OfFile(const std::string& path) {
  if (path.ends_with(".json")) return OfJson(path);
  SUMONCE_ASSIGN_OR_RETURN(Manifest manifest, OfSafetensors(path));
  std::vector<Manifest> manifests;
  manifests.push_back(std::move(manifest));
  return manifests;
}

}  // namespace

absl::StatusOr<std::vector<Manifest>> LoadManifests(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return OfFile(path);
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<StepFolder> steps, ListCapture(path));
  std::vector<Manifest> manifests;
  std::vector<std::string> mistakes;
  for (const RankFile& file : steps.front().ranks) {
    absl::StatusOr<std::vector<Manifest>> of_file = OfFile(file.path);
    if (!of_file.ok()) {
      mistakes.emplace_back(of_file.status().message());
    } else if (of_file->size() != 1 || of_file->front().rank != file.rank) {
      mistakes.push_back(absl::StrCat(file.path, ": its metadata is of rank ",
                                      of_file->front().rank, "; expected rank ", file.rank));
    } else {
      manifests.push_back(std::move(of_file->front()));
    }
  }
  if (!mistakes.empty()) return absl::InvalidArgumentError(absl::StrJoin(mistakes, "\n"));
  return manifests;
}

}  // namespace sumonce::capture
