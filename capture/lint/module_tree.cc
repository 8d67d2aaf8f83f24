#include "capture/lint/module_tree.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace sumonce::lint {
namespace {

const std::set<std::string>& NoNames() {
  static const auto& none = *new std::set<std::string>;
  return none;
}

const capture::Attributes& NoAttributes() {
  static const auto& none = *new capture::Attributes;
  return none;
}

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Shorter numbers first, so 2 comes before 10; other names by their letters.
bool Before(const std::string& a, const std::string& b) {
  if (IsNumber(a) && IsNumber(b) && a.size() != b.size()) return a.size() < b.size();
  return a < b;
}

}  // namespace

ModuleTree::ModuleTree(const capture::Manifest& manifest, const KindOf& kind_of)
    : manifest_(manifest) {
  for (const auto& [path, module] : manifest.modules)
    modules_[path] = kind_of(path, module.class_name);
  for (const auto& [name, param] : manifest.params) {
    const size_t dot = name.rfind('.');
    const std::string path = dot == std::string::npos ? "" : name.substr(0, dot);
    params_[path].insert(name.substr(dot == std::string::npos ? 0 : dot + 1));
  }
}

ModuleKind ModuleTree::KindAt(const std::string& path) const {
  const auto found = modules_.find(path);
  return found == modules_.end() ? ModuleKind::kUnknown : found->second;
}

std::string ModuleTree::ClassAt(const std::string& path) const {
  const auto found = manifest_.modules.find(path);
  return found == manifest_.modules.end() ? "" : found->second.class_name;
}

const capture::Attributes& ModuleTree::AttributesAt(const std::string& path) const {
  const auto found = manifest_.modules.find(path);
  return found == manifest_.modules.end() ? NoAttributes() : found->second.attributes;
}

std::vector<std::string> ModuleTree::Children(const std::string& path) const {
  const std::string prefix = path + ".";
  std::set<std::string> names;
  for (auto it = modules_.lower_bound(prefix); it != modules_.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    names.insert(
        it->first.substr(prefix.size(), it->first.find('.', prefix.size()) - prefix.size()));
  }
  std::vector<std::string> sorted(names.begin(), names.end());
  std::sort(sorted.begin(), sorted.end(), Before);
  return sorted;
}

std::vector<std::string> ModuleTree::PathsOf(ModuleKind kind) const {
  std::vector<std::string> paths;
  for (const auto& [path, value] : modules_) {
    if (value == kind) paths.push_back(path);
  }
  return paths;
}

const std::set<std::string>& ModuleTree::ParamsAt(const std::string& path) const {
  const auto found = params_.find(path);
  return found == params_.end() ? NoNames() : found->second;
}

bool ModuleTree::HasParam(const std::string& path, const std::string& leaf) const {
  return ParamsAt(path).contains(leaf);
}

std::string ModuleTree::OwnerOf(const std::string& param) const {
  std::string path = param;
  while (true) {
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) return "";
    path.resize(dot);
    if (modules_.contains(path)) return path;
  }
}

std::string Joined(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(ToAbsl(path), ".", ToAbsl(name));
}

std::string PatternOf(std::string_view path) {
  std::vector<std::string> parts = absl::StrSplit(ToAbsl(path), '.');
  for (std::string& part : parts) {
    if (IsNumber(part)) part = "*";
  }
  return absl::StrJoin(parts, ".");
}

}  // namespace sumonce::lint
