#include "layers/module.h"

#include "base/status.h"
#include "base/text.h"

namespace sumonce {

bool LoraConfig::Targets(std::string_view module_path) const {
  if (!enabled) return false;
  const size_t dot = module_path.rfind('.');
  const std::string_view last =
      dot == std::string_view::npos ? module_path : module_path.substr(dot + 1);
  for (const std::string& target : targets) {
    if (GlobMatches(target, last) || GlobMatches(target, module_path)) return true;
  }
  return false;
}

Param& ParamStore::Create(Param param) {
  SUMONCE_CHECK(Find(param.name) == nullptr) << param.name << " is created twice";
  params_.push_back(std::move(param));
  return params_.back();
}

Param* ParamStore::Find(std::string_view name) {
  for (Param& param : params_) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

Builder Builder::Child(std::string_view name) const {
  Builder child = *this;
  if (!path_.empty()) child.path_ += '.';
  child.path_ += name;
  child.name_ = name;
  return child;
}

Param& Builder::Create(std::string_view name, ShardMap shards, Init init, Marks marks) const {
  Param& param = CreateTrainable(name, std::move(shards), init, marks);
  param.requires_grad = !config_->lora.enabled || config_->train_base;
  return param;
}

Param& Builder::CreateTrainable(std::string_view name, ShardMap shards, Init init,
                                Marks marks) const {
  Param param;
  param.name = path_ + (path_.empty() ? "" : ".") + std::string(name);
  param.shards = std::move(shards);
  param.init = init;
  param.marks = marks;
  return params_->Create(std::move(param));
}

Marks ShardedMarks(int partition_dim) {
  return {.tensor_model_parallel = true, .partition_dim = partition_dim};
}

Marks SequenceParallelMarks(const LayerConfig& config) {
  return {.sequence_parallel = config.sequence_parallel};
}

Init NormInit(NormKind norm) {
  return {.kind = norm == NormKind::kPlain ? Init::Kind::kOne : Init::Kind::kZero};
}

int64_t LoraConfig::RankOf(std::string_view module_path) const {
  if (!separate_adapters) return r;
  if (module_path.ends_with(".linear_qkv")) return 3 * r;
  if (module_path.ends_with(".in_proj")) return 4 * r;
  for (const char* of_two : {".linear_fc1", ".in_proj_qkvz", ".in_proj_ba", ".linear_kv"}) {
    if (module_path.ends_with(of_two)) return 2 * r;
  }
  return r;
}

}  // namespace sumonce
