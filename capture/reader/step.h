// One captured step, opened: which ranks are there, who they are, and where each tensor lies. Only
// headers are in memory, once for all ranks whose headers are alike; tensors are read through
// file(). What is wrong with single files or between them is kept as faults, and the rest is used.
//
// Reading is const and may come from several threads.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/folder.h"
#include "capture/manifest.h"
#include "capture/reader/tensor_file.h"

namespace sumonce::capture {

// A file that cannot be used, or that contradicts the others: its rank counts as missing.
struct FileFault {
  int rank = 0;
  std::string text;  // names the file, what is wrong and what to do
};

class Step {
 public:
  // InvalidArgument or NotFound if no rank's file can be used: then all faults are in the message.
  static absl::StatusOr<Step> Open(const StepFolder& folder);

  int64_t step() const { return step_; }
  const std::string& path() const { return path_; }
  int world_size() const { return world_size_; }
  // Ranks whose files are used, ascending; and those without one.
  const std::vector<int>& ranks() const { return ranks_; }
  const std::vector<int>& missing() const { return missing_; }
  const std::vector<FileFault>& faults() const { return faults_; }
  bool Has(int rank) const { return rank >= 0 && rank < world_size_ && files_[rank] != nullptr; }

  // What a rank says of itself (step, rank, mesh, tokens, grad_norm, owned), and what it shares
  // with all ranks like it: params, groups, layout, modules, config. The identity in Common() is
  // that of the first such rank.
  const Manifest& Identity(int rank) const { return files_[rank]->identity; }
  const Manifest& Common(int rank) const { return *files_[rank]->common; }
  const Manifest& first() const { return Common(ranks_.front()); }

  // Parameters that have a tensor on some rank, sorted; an index into it is a parameter's number.
  const std::vector<std::string>& params() const { return params_; }
  int ParamNumber(const std::string& name) const;  // -1: none
  // Kinds of tensors: "contribution", "finalized", "weight", "contribution@0", ...
  const std::vector<std::string>& kinds() const { return kinds_; }
  int KindNumber(const std::string& name) const;  // -1: none

  // The tensor of this kind; not present() if the rank has none. kind -1 gives none.
  StoredTensor Find(int rank, int param, int kind) const;
  // Its shape; empty if there is none.
  std::vector<int64_t> ShapeOf(int rank, int param, int kind) const;
  const TensorFile& file(int rank) const { return *files_[rank]->file; }

 private:
  struct Entry {
    int32_t param = 0;
    int32_t kind = 0;
    int32_t shape = 0;  // index into shapes_
    DType dtype = DType::kFloat32;
    int64_t begin = 0;  // of the data section
    bool operator==(const Entry&) const = default;
  };
  using Table = std::vector<Entry>;  // sorted by parameter and kind
  struct OpenFile {
    Manifest identity;
    std::shared_ptr<const Manifest> common;
    std::shared_ptr<const Table> table;
    std::optional<TensorFile> file;
    int64_t data_offset = 0;
  };

  absl::StatusOr<std::unique_ptr<OpenFile>> OpenRank(const RankFile& file, bool keep_open);
  void Admit(std::vector<std::unique_ptr<OpenFile>> opened);
  std::shared_ptr<const Table> TableOf(const std::map<std::string, TensorInfo>& tensors);
  const Entry* FindEntry(int rank, int param, int kind) const;
  void SortNames();
  void FindDoubles();

  int64_t step_ = 0;
  std::string path_;
  int world_size_ = 1;
  std::vector<int> ranks_;
  std::vector<int> missing_;
  std::vector<FileFault> faults_;
  std::vector<std::unique_ptr<OpenFile>> files_;  // by rank; null: missing
  std::vector<std::string> params_;
  std::vector<std::string> kinds_;
  std::map<std::string, int, std::less<>> param_numbers_;
  std::map<std::string, int, std::less<>> kind_numbers_;
  std::vector<std::vector<int64_t>> shapes_;
  std::map<std::vector<int64_t>, int> shape_numbers_;
  std::vector<std::shared_ptr<Table>> tables_;                     // distinct ones
  std::map<std::string, std::shared_ptr<const Manifest>> common_;  // by their text's digest
};

}  // namespace sumonce::capture
