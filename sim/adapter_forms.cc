#include "sim/adapter_forms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sim/hf_names.h"

namespace sumonce {
namespace {

constexpr std::string_view kA = "lora_A", kB = "lora_B";

std::string LeafOf(const std::string& param) { return param.substr(param.rfind('.') + 1); }

int64_t RankOf(const Dims& dims, const std::string& leaf) {
  return leaf == kA ? dims.front().extent() : dims.back().extent();
}

absl::Status Misfit(const Param& param, int64_t ranks, const std::string& source) {
  return absl::InvalidArgumentError(absl::StrCat(param.name, " ", Describe(param.shards.whole()),
                                                 " has another rank than ", source, ": expected ",
                                                 ranks));
}

// The rows of a fused matrix that are a sub-projection's, in the order of its own factor.
std::vector<int64_t> OwnOrder(const SubProjection& part) {
  std::vector<int64_t> rows = part.rows;
  std::sort(rows.begin(), rows.end());
  return rows;
}

// lora_A is handed on, of lora_B the sub-projection's rows.
absl::StatusOr<Tensor> SubFromFused(const Param& param, const SubProjection& part,
                                    const Tensor& fused) {
  const std::string leaf = LeafOf(param.name);
  const int64_t r = RankOf(fused.dims(), leaf);
  if (RankOf(param.shards.whole(), leaf) != r) return Misfit(param, r, "the fused adapter");
  if (leaf == kA) return fused.WithDims(param.shards.whole());
  Tensor own(param.shards.whole());
  const std::vector<int64_t> rows = OwnOrder(part);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(fused.data() + rows[i] * r, r, own.data() + static_cast<int64_t>(i) * r);
  return own;
}

// One sub-projection's factor in its place of the fused one, whose ranks `at` .. are its own.
void PlaceSub(const Tensor& sub, const SubProjection& part, const std::string& leaf, int64_t at,
              Tensor& fused) {
  const int64_t r = RankOf(sub.dims(), leaf), ranks = RankOf(fused.dims(), leaf);
  if (leaf == kA) {
    std::copy_n(sub.data(), sub.count(), fused.data() + at * (sub.count() / r));
    return;
  }
  const std::vector<int64_t> rows = OwnOrder(part);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(sub.data() + static_cast<int64_t>(i) * r, r, fused.data() + rows[i] * ranks + at);
}

absl::StatusOr<Tensor> FusedFromSubs(const Param& param, const HfModule& module,
                                     const Weights& from) {
  const std::string leaf = LeafOf(param.name), path = ModuleOf(param.name);
  Tensor fused(param.shards.whole());
  int64_t at = 0;
  for (const SubProjection& part : module.parts) {
    const std::string name = absl::StrCat(path, ".", part.name, ".", leaf);
    const auto sub = from.find(name);
    if (sub == from.end())
      return absl::NotFoundError(
          absl::StrCat(param.name, ": there is no ", name, " to make it of"));
    const int64_t r = RankOf(sub->second.dims(), leaf);
    if (at + r > RankOf(fused.dims(), leaf)) return Misfit(param, at + r, "its sub-projections");
    PlaceSub(sub->second, part, leaf, at, fused);
    at += r;
  }
  if (at != RankOf(fused.dims(), leaf)) return Misfit(param, at, "its sub-projections");
  return fused;
}

absl::StatusOr<Tensor> Converted(const ModelConfig& model, const Weights& from,
                                 const Param& param) {
  if (const auto same = from.find(param.name); same != from.end()) return same->second;
  const std::string module = ModuleOf(param.name);
  const std::string fused_name = absl::StrCat(ModuleOf(module), ".", LeafOf(param.name));
  const std::optional<HfModule> fused = HfModuleOf(model, ModuleOf(module));
  if (const auto whole = from.find(fused_name); whole != from.end() && fused) {
    for (const SubProjection& part : fused->parts) {
      if (module.ends_with("." + part.name)) return SubFromFused(param, part, whole->second);
    }
  }
  const std::optional<HfModule> own = HfModuleOf(model, module);
  if (own) return FusedFromSubs(param, *own, from);
  return absl::NotFoundError(absl::StrCat(param.name, ": there is no adapter to make it of"));
}

}  // namespace

absl::StatusOr<Weights> ConvertAdapters(const ModelConfig& model, const Weights& from,
                                        const ParamStore& to) {
  Weights weights;
  for (const Param& param : to.all()) {
    const std::string leaf = LeafOf(param.name);
    if (leaf != kA && leaf != kB) continue;
    SUMONCE_ASSIGN_OR_RETURN(weights[param.name], Converted(model, from, param));
  }
  return weights;
}

}  // namespace sumonce
