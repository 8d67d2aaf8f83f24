#include "capture/reader/step.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/digest.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "capture/same_run.h"

namespace sumonce::capture {
namespace {

constexpr size_t kMaxOpenFiles = 256;

// What ranks of one stage usually have in common, and what is large.
constexpr const char* kCommonKeys[] = {"params", "modules", "layout",    "placements", "groups",
                                       "config", "tied",    "optimizer", "ddp",        "framework"};

// Splits the metadata into what a rank says of itself and a digest of the rest.
std::string TakeCommon(std::map<std::string, std::string>& metadata) {
  Digest digest;
  for (const char* key : kCommonKeys) {
    const auto entry = metadata.find(key);
    digest.Add(key);
    digest.Add(entry == metadata.end() ? std::string_view("absent") : entry->second);
    if (entry != metadata.end()) metadata.erase(entry);
  }
  metadata["params"] = "{}";
  return digest.Hex();
}

}  // namespace

absl::StatusOr<Step> Step::Open(const StepFolder& folder) {
  Step step;
  step.step_ = folder.step;
  step.path_ = folder.path;
  const bool keep_open = folder.ranks.size() <= kMaxOpenFiles;
  std::vector<std::unique_ptr<OpenFile>> opened;
  for (const RankFile& file : folder.ranks) {
    absl::StatusOr<std::unique_ptr<OpenFile>> rank = step.OpenRank(file, keep_open);
    if (rank.ok()) {
      opened.push_back(*std::move(rank));
    } else {
      step.faults_.push_back({.rank = file.rank, .text = std::string(rank.status().message())});
    }
  }
  if (opened.empty()) {
    std::vector<std::string> texts;
    for (const FileFault& fault : step.faults_) texts.push_back(fault.text);
    return absl::InvalidArgumentError(absl::StrJoin(texts, "\n"));
  }
  step.Admit(std::move(opened));
  for (int rank = 0; rank < step.world_size_; ++rank) {
    if (!step.Has(rank)) step.missing_.push_back(rank);
  }
  step.FindDoubles();
  step.SortNames();
  step.common_.clear();
  return step;
}

absl::StatusOr<std::unique_ptr<Step::OpenFile>> Step::OpenRank(const RankFile& file,
                                                               bool keep_open) {
  if (file.path.ends_with(".json")) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": a manifest without tensors; sumonce lint reads it"));
  }
  SUMONCE_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(file.path));
  auto opened = std::make_unique<OpenFile>();
  std::map<std::string, std::string> metadata = reader.metadata();
  std::shared_ptr<const Manifest>& common = common_[TakeCommon(metadata)];
  if (!common) {
    absl::StatusOr<Manifest> manifest = ParseManifest(reader.metadata(), file.path);
    if (!manifest.ok()) return manifest.status();
    common = std::make_shared<const Manifest>(*std::move(manifest));
  }
  opened->common = common;
  SUMONCE_ASSIGN_OR_RETURN(opened->identity, ParseManifest(metadata, file.path));
  if (opened->identity.rank != file.rank) {
    return absl::InvalidArgumentError(absl::StrCat(file.path, ": its metadata is of rank ",
                                                   opened->identity.rank, "; expected rank ",
                                                   file.rank, ": was the file renamed?"));
  }
  opened->table = TableOf(reader.tensors());
  opened->data_offset = reader.data_offset();
  SUMONCE_ASSIGN_OR_RETURN(opened->file, TensorFile::Open(file.path, keep_open));
  return opened;
}

// What most ranks say of the run is the step; what is of another is left out.
void Step::Admit(std::vector<std::unique_ptr<OpenFile>> opened) {
  std::vector<RunFacts> facts;
  for (const auto& file : opened) facts.push_back(RunFactsOf(file->identity, *file->common));
  const size_t most = MostCommon(facts);
  const std::string other = absl::StrCat("rank ", opened[most]->identity.rank);
  world_size_ = opened[most]->identity.world_size;
  files_.resize(world_size_);
  for (size_t i = 0; i < opened.size(); ++i) {
    const Manifest& identity = opened[i]->identity;
    const int rank = identity.rank;
    std::string text = ForeignText(identity.path, facts[i], facts[most], other);
    if (text.empty()) {
      files_[rank] = std::move(opened[i]);
      ranks_.push_back(rank);
    } else {
      faults_.push_back({.rank = rank, .text = std::move(text)});
    }
  }
}

std::shared_ptr<const Step::Table> Step::TableOf(const std::map<std::string, TensorInfo>& tensors) {
  auto table = std::make_shared<Table>();
  table->reserve(tensors.size());
  const auto number = [](const std::string& name, auto& numbers, std::vector<std::string>& names) {
    const auto [entry, added] = numbers.emplace(name, static_cast<int>(names.size()));
    if (added) names.push_back(name);
    return entry->second;
  };
  for (const auto& [name, info] : tensors) {
    const size_t slash = name.find('/');
    if (slash == name.npos || slash == 0 || slash + 1 == name.size()) continue;  // not ours
    const auto [shape, added] =
        shape_numbers_.emplace(info.shape, static_cast<int>(shapes_.size()));
    if (added) shapes_.push_back(info.shape);
    table->push_back({.param = number(name.substr(slash + 1), param_numbers_, params_),
                      .kind = number(name.substr(0, slash), kind_numbers_, kinds_),
                      .shape = shape->second,
                      .dtype = info.dtype,
                      .begin = info.begin});
  }
  for (const std::shared_ptr<Table>& other : tables_) {
    if (*other == *table) return other;
  }
  tables_.push_back(table);
  return table;
}

// Two ranks at one place of the mesh: one of them is not what it says.
void Step::FindDoubles() {
  std::map<std::vector<int>, int> places;
  std::vector<int> kept;
  for (const int rank : ranks_) {
    std::vector<int> place;
    for (const auto& [axis, entry] : Identity(rank).mesh) place.push_back(entry.coordinate);
    const auto [other, added] = places.emplace(place, rank);
    if (added) {
      kept.push_back(rank);
      continue;
    }
    faults_.push_back(
        {.rank = rank,
         .text = absl::StrCat(Identity(rank).path, ": has the mesh coordinates of rank ",
                              other->second, "; every rank has its own")});
    files_[rank].reset();
    missing_.push_back(rank);
  }
  ranks_ = std::move(kept);
  std::sort(missing_.begin(), missing_.end());
}

// Numbers in the order of names, so that every output is. Parameters that only files which were
// left out have are none of the step's.
void Step::SortNames() {
  std::vector<bool> used(params_.size());
  for (const int rank : ranks_) {
    for (const Entry& entry : *files_[rank]->table) used[entry.param] = true;
  }
  std::vector<int> new_number(params_.size(), -1);
  params_.clear();
  std::erase_if(param_numbers_, [&](const auto& entry) { return !used[entry.second]; });
  int next = 0;
  for (auto& [name, number] : param_numbers_) {
    new_number[number] = next;
    number = next++;
    params_.push_back(name);
  }
  for (const std::shared_ptr<Table>& table : tables_) {
    for (Entry& entry : *table) entry.param = new_number[entry.param];
    std::sort(table->begin(), table->end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.param, a.kind) < std::pair(b.param, b.kind);
    });
  }
}

int Step::ParamNumber(const std::string& name) const {
  const auto entry = param_numbers_.find(name);
  return entry == param_numbers_.end() ? -1 : entry->second;
}

int Step::KindNumber(const std::string& name) const {
  const auto entry = kind_numbers_.find(name);
  return entry == kind_numbers_.end() ? -1 : entry->second;
}

const Step::Entry* Step::FindEntry(int rank, int param, int kind) const {
  if (!Has(rank) || param < 0 || kind < 0) return nullptr;
  const Table& table = *files_[rank]->table;
  const auto entry = std::lower_bound(
      table.begin(), table.end(), std::pair(param, kind),
      [](const Entry& a, const auto& key) { return std::pair<int, int>(a.param, a.kind) < key; });
  if (entry == table.end() || entry->param != param || entry->kind != kind) return nullptr;
  return &*entry;
}

StoredTensor Step::Find(int rank, int param, int kind) const {
  StoredTensor tensor;
  const Entry* entry = FindEntry(rank, param, kind);
  if (entry == nullptr) return tensor;
  const std::vector<int64_t>& shape = shapes_[entry->shape];
  tensor.offset = files_[rank]->data_offset + entry->begin;
  tensor.dtype = entry->dtype;
  tensor.count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return tensor;
}

std::vector<int64_t> Step::ShapeOf(int rank, int param, int kind) const {
  const Entry* entry = FindEntry(rank, param, kind);
  return entry == nullptr ? std::vector<int64_t>() : shapes_[entry->shape];
}

}  // namespace sumonce::capture
