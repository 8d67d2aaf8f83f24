#include "cli/selection.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/default_paths.h"
#include "cli/exit_code.h"

namespace sumonce {
namespace {

constexpr size_t kMaxRuns = 100'000;

void AddMistake(const Mistake& mistake, std::vector<std::string>& mistakes) {
  std::string text = Format(mistake);
  if (std::find(mistakes.begin(), mistakes.end(), text) == mistakes.end())
    mistakes.push_back(std::move(text));
}

// A scenario's name, as `list` prints it, or an area's stands for its file or folder among those
// that came along. What is there as given is taken as given, and so is what is nowhere.
std::string Resolved(const std::string& given, const std::vector<std::string>& roots) {
  std::error_code error;
  if (std::filesystem::exists(given, error)) return given;
  for (const std::string& root : roots) {
    for (const char* extension : {".textproto", ""}) {
      std::string path = absl::StrCat(root, "/", given, extension);
      if (std::filesystem::exists(path, error)) return path;
    }
  }
  return given;
}

// "; did you mean 'lora/row_flag_missing'?" of what is neither a path nor a name; "" if nothing is
// like it.
std::string NameLike(const std::string& given, const std::vector<std::string>& roots) {
  std::vector<Mistake> ignored;
  std::vector<std::string> names;
  for (const ScenarioFile& file : FindScenarios(roots, ignored)) {
    names.push_back(file.name);
    names.push_back(file.name.substr(0, file.name.find('/')));  // the area
  }
  const std::string closest = Closest(given, names);
  return closest.empty() ? "" : absl::StrCat("; did you mean '", closest, "'?");
}

std::string NoMatch(const std::string& filter, const std::vector<ScenarioFile>& files) {
  std::vector<std::string> names;
  for (const ScenarioFile& file : files) names.push_back(file.name);
  const std::string closest = Closest(filter, names);
  return absl::StrCat("--filter '", filter, "' matches none of ", files.size(), " scenarios",
                      closest.empty() ? "" : absl::StrCat("; did you mean '", closest, "'?"));
}

}  // namespace

std::vector<Overrides> Products(const SelectionFlags& flags) {
  std::vector<Overrides> products = {Overrides{.axes = {}, .seed = flags.seed}};
  for (const auto& [axis, sizes] : flags.axes) {
    std::vector<Overrides> longer;
    for (const Overrides& product : products) {
      for (const int size : sizes) {
        longer.push_back(product);
        longer.back().axes[axis] = size;
      }
    }
    products = std::move(longer);
  }
  return products;
}

std::string NameSuffix(const Overrides& overrides) {
  if (overrides.axes.empty()) return "";
  std::vector<std::string> parts;
  for (const auto& [axis, size] : overrides.axes)
    parts.push_back(absl::StrCat(ToAbsl(Name(axis)), "=", size));
  return absl::StrCat("[", absl::StrJoin(parts, ","), "]");
}

std::vector<ScenarioFile> FindSelected(const SelectionFlags& flags, Selection& selection) {
  const std::vector<std::string> defaults = DefaultScenarioPaths();
  std::vector<std::string> paths = flags.paths.empty() ? defaults : flags.paths;
  if (std::find(paths.begin(), paths.end(), "") != paths.end()) {
    selection.mistakes.push_back(
        "sumonce: error: '' names no scenario, expected a name, a file or a directory; is a "
        "variable of the shell empty?");
    return {};
  }
  for (std::string& path : paths) path = Resolved(path, defaults);
  std::vector<Mistake> mistakes;
  const std::vector<ScenarioFile> files = FindScenarios(paths, mistakes);
  for (Mistake& mistake : mistakes) {
    if (!absl::StrContains(mistake.message, "did you mean"))
      mistake.message += NameLike(mistake.location.file, defaults);
    AddMistake(mistake, selection.mistakes);
  }
  std::vector<ScenarioFile> matching;
  std::copy_if(files.begin(), files.end(), std::back_inserter(matching),
               [&](const ScenarioFile& file) { return GlobMatches(flags.filter, file.name); });
  if (files.empty()) {
    selection.nothing = absl::StrCat("no scenario (*.textproto) in ", absl::StrJoin(paths, ", "));
  } else if (matching.empty()) {
    selection.nothing = NoMatch(flags.filter, files);
  }
  return matching;
}

Selection Select(const SelectionFlags& flags) {
  Selection selection;
  const std::vector<ScenarioFile> files = FindSelected(flags, selection);
  const std::vector<Overrides> products = Products(flags);
  if (files.size() * products.size() > kMaxRuns) {
    selection.mistakes.push_back(absl::StrCat("sumonce: error: ", files.size(), " scenarios on ",
                                              products.size(), " meshes, more than ", kMaxRuns,
                                              " runs; give fewer sizes, or a --filter"));
    return selection;
  }
  for (const ScenarioFile& file : files) {
    for (const Overrides& overrides : products) {
      ReadResult read = ReadScenario(file.path, file.name + NameSuffix(overrides), overrides);
      for (const Mistake& mistake : read.mistakes) AddMistake(mistake, selection.mistakes);
      selection.runs.push_back({std::move(read.scenario), overrides});
    }
  }
  return selection;
}

int Complain(const Selection& selection, Context& context) {
  for (const std::string& mistake : selection.mistakes)
    context.io.err << Printable(mistake) << '\n';
  if (!selection.mistakes.empty()) return kUsage;
  if (selection.nothing.empty()) return kAsExpected;
  context.io.err << "sumonce: nothing selected: " << Printable(selection.nothing) << '\n';
  return kNothingSelected;
}

std::string OverrideFlags(const Overrides& overrides) {
  std::string flags;
  for (const auto& [axis, size] : overrides.axes)
    absl::StrAppend(&flags, " --", ToAbsl(Name(axis)), " ", size);
  if (overrides.seed) absl::StrAppend(&flags, " --seed ", *overrides.seed);
  return flags;
}

}  // namespace sumonce
