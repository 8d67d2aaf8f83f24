// The modules and parameters of a manifest by their places: which module holds which, and which
// module a parameter belongs to. Parameter names have no ".base_layer", module paths may.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "capture/lint/module_kinds.h"
#include "capture/manifest.h"

namespace sumonce::lint {

class ModuleTree {
 public:
  using KindOf = std::function<ModuleKind(const std::string& path, const std::string& class_name)>;
  // `kind_of` answers for each module: the table of classes, or a module map's entry.
  ModuleTree(const capture::Manifest& manifest, const KindOf& kind_of);

  // kUnknown if there is no such module; the empty path never is one.
  ModuleKind KindAt(const std::string& path) const;
  bool Has(const std::string& path) const { return modules_.contains(path); }
  std::string ClassAt(const std::string& path) const;  // "" if there is none
  const capture::Attributes& AttributesAt(const std::string& path) const;

  // The next names below a path, of modules; numbers in their order.
  std::vector<std::string> Children(const std::string& path) const;
  std::vector<std::string> PathsOf(ModuleKind kind) const;
  // Parameters directly at the path: "weight", "bias", "A_log".
  const std::set<std::string>& ParamsAt(const std::string& path) const;
  bool HasParam(const std::string& path, const std::string& leaf) const;

  // The innermost module that holds the parameter; "" if none does.
  std::string OwnerOf(const std::string& param) const;
  const std::map<std::string, ModuleKind>& all() const { return modules_; }

 private:
  const capture::Manifest& manifest_;
  std::map<std::string, ModuleKind> modules_;
  std::map<std::string, std::set<std::string>> params_;  // by the path in front of the leaf
};

// "decoder.layers.0" + "mlp"; no dot for an empty path.
std::string Joined(std::string_view path, std::string_view name);
// A path with every number replaced: "decoder.layers.*.mlp".
std::string PatternOf(std::string_view path);

}  // namespace sumonce::lint
