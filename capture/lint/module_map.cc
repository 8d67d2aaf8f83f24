#include "capture/lint/module_map.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "capture/folder.h"
#include "proto/module_map.pb.h"

namespace sumonce::lint {
namespace {

using google::protobuf::TextFormat;

constexpr int64_t kMaxMapBytes = int64_t{1} << 20;

// "file:3:5: error: ..." lines.
class MapMistakes : public google::protobuf::io::ErrorCollector {
 public:
  explicit MapMistakes(std::string file) : file_(std::move(file)) {}
  void AddError(int line, int column, const std::string& message) override {
    lines_.push_back(absl::StrCat(file_, ":", line + 1, ":", column + 1, ": error: ", message));
  }
  absl::Status ToStatus() const {
    return lines_.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
  }

 private:
  std::string file_;
  std::vector<std::string> lines_;
};

GradClass ClassOf(proto::ParamClass::Class grad_class) {
  switch (grad_class) {
    case proto::ParamClass::PARTIAL:
      return GradClass::kPartial;
    case proto::ParamClass::COMPLETE:
      return GradClass::kComplete;
    case proto::ParamClass::EQUAL_SHARE:
      return GradClass::kEqualShare;
    case proto::ParamClass::SHARD:
      return GradClass::kShard;
    default:
      return GradClass::kUnknown;
  }
}

// The kind of this name, or a mistake with the nearest one.
std::optional<ModuleKind> KindNamed(const std::string& name, std::string* problem) {
  std::vector<std::string> names;
  for (const auto& [known, kind] : KindsOfModuleMap()) {
    if (known == name) return kind;
    names.emplace_back(known);
  }
  const std::string closest = Closest(name, names);
  *problem = absl::StrCat("acts_as: '", name, "', expected one of ", absl::StrJoin(names, ", "),
                          closest.empty() ? "" : absl::StrCat("; did you mean ", closest, "?"));
  return std::nullopt;
}

ModuleMapEntry EntryOf(const proto::Module& module, std::vector<std::string>& problems) {
  ModuleMapEntry entry{.class_name = module.class_(), .path = module.path()};
  if (entry.class_name.empty() && entry.path.empty())
    problems.push_back("this module has neither class nor path; say which it is");
  if (!module.acts_as().empty()) {
    std::string problem;
    entry.acts_as = KindNamed(module.acts_as(), &problem);
    if (!problem.empty()) problems.push_back(problem);
  }
  for (const proto::ParamClass& param : module.param()) {
    const GradClass grad_class = ClassOf(param.class_());
    if (grad_class == GradClass::kUnknown) {
      problems.push_back("param without class, expected PARTIAL, COMPLETE, EQUAL_SHARE or SHARD");
    }
    entry.params.push_back({param.name().empty() ? "*" : param.name(), grad_class});
  }
  if (!entry.acts_as && entry.params.empty() && module.acts_as().empty())
    problems.push_back("this module says neither acts_as nor param; one of them is needed");
  if (entry.acts_as && !entry.params.empty())
    problems.push_back("this module says acts_as and param; one of them decides, take one out");
  return entry;
}

bool Fits(const std::string& glob, const std::string& text) {
  return glob.empty() || GlobMatches(glob, text);
}

}  // namespace

const ModuleMapEntry* ModuleMap::Find(const std::string& path,
                                      const std::string& class_name) const {
  for (const ModuleMapEntry& entry : modules) {
    if (Fits(entry.path, path) && Fits(entry.class_name, class_name)) return &entry;
  }
  return nullptr;
}

absl::StatusOr<ModuleMap> ReadModuleMap(const std::string& path) {
  SUMONCE_ASSIGN_OR_RETURN(const std::string text, capture::ReadTextFile(path, kMaxMapBytes));
  MapMistakes mistakes(path);
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&mistakes);
  parser.WriteLocationsTo(&tree);
  parser.SetRecursionLimit(8);
  proto::ModuleMap parsed;
  if (!parser.ParseFromString(text, &parsed)) return mistakes.ToStatus();
  ModuleMap map;
  const auto* field = proto::ModuleMap::descriptor()->FindFieldByName("module");
  for (int i = 0; i < parsed.module_size(); ++i) {
    std::vector<std::string> problems;
    map.modules.push_back(EntryOf(parsed.module(i), problems));
    const TextFormat::ParseLocation at = tree.GetLocation(field, i);
    for (const std::string& problem : problems) mistakes.AddError(at.line, at.column, problem);
  }
  SUMONCE_RETURN_IF_ERROR(mistakes.ToStatus());
  return map;
}

}  // namespace sumonce::lint
