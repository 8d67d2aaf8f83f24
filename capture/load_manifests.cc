#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/folder.h"
#include "capture/json_fields.h"
#include "capture/manifest.h"
#include "capture/same_run.h"

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

// Takes out what is not of the run that most are of.
void TakeOutForeign(ManifestSet& set) {
  std::vector<RunFacts> facts;
  for (const Manifest& manifest : set.manifests) facts.push_back(RunFactsOf(manifest, manifest));
  const size_t most = MostCommon(facts);
  const std::string other = absl::StrCat("rank ", set.manifests[most].rank);
  std::vector<Manifest> kept;
  for (size_t i = 0; i < facts.size(); ++i) {
    std::string text = ForeignText(set.manifests[i].path, facts[i], facts[most], other);
    if (text.empty()) {
      kept.push_back(std::move(set.manifests[i]));
    } else {
      set.faults.push_back(std::move(text));
    }
  }
  set.manifests = std::move(kept);
}

void FindMissing(const std::string& path, const std::set<int>& have_files, ManifestSet& set) {
  const int world_size = set.manifests.front().world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!have_files.contains(rank)) set.without_file.push_back(rank);
  }
  if (set.without_file.empty()) return;
  set.faults.push_back(NoFileText(path, set.without_file, world_size));
}

absl::StatusOr<ManifestSet> OfFolder(const std::string& path) {
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<StepFolder> steps, ListCapture(path));
  ManifestSet set;
  std::set<int> have_files;
  for (const RankFile& file : steps.front().ranks) {
    have_files.insert(file.rank);
    absl::StatusOr<std::vector<Manifest>> of_file = OfFile(file.path);
    if (!of_file.ok()) {
      set.faults.emplace_back(of_file.status().message());
    } else if (of_file->size() != 1 || of_file->front().rank != file.rank) {
      set.faults.push_back(absl::StrCat(file.path, ": its metadata is of rank ",
                                        of_file->front().rank, "; expected rank ", file.rank));
    } else {
      set.manifests.push_back(std::move(of_file->front()));
    }
  }
  if (set.manifests.empty()) return absl::InvalidArgumentError(absl::StrJoin(set.faults, "\n"));
  TakeOutForeign(set);
  FindMissing(steps.front().path, have_files, set);
  return set;
}

}  // namespace

absl::StatusOr<ManifestSet> LoadManifestSet(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return OfFolder(path);
  ManifestSet set;
  SUMONCE_ASSIGN_OR_RETURN(set.manifests, OfFile(path));
  if (set.manifests.size() == 1) return set;
  std::set<int> listed;
  for (const Manifest& manifest : set.manifests) {
    if (!listed.insert(manifest.rank).second)
      return absl::InvalidArgumentError(
          absl::StrCat(manifest.path, ": rank ", manifest.rank, " stands there a second time"));
  }
  TakeOutForeign(set);
  FindMissing(path, listed, set);
  return set;
}

absl::StatusOr<std::vector<Manifest>> LoadManifests(const std::string& path) {
  SUMONCE_ASSIGN_OR_RETURN(ManifestSet set, LoadManifestSet(path));
  if (!set.without_file.empty()) set.faults.pop_back();
  if (!set.faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(set.faults, "\n"));
  return std::move(set.manifests);
}

}  // namespace sumonce::capture
