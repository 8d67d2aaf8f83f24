#include "cli/config_selection.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/output_file.h"
#include "sim/hf_config.h"

namespace sumonce {
namespace {

bool IsConfig(const std::string& path) {
  std::error_code error;
  return path.ends_with(".json") || std::filesystem::is_regular_file(path + "/config.json", error);
}

// The folder that a config stands in.
std::string NameOf(const std::string& config) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(config, error).lexically_normal();
  const bool file = std::filesystem::is_regular_file(path, error);
  const std::string name = (file ? path.parent_path() : path).filename().string();
  return name.empty() ? "config" : name;
}

int SizeOf(const Overrides& overrides, Axis axis) {
  const auto given = overrides.axes.find(axis);
  return given == overrides.axes.end() ? 2 : given->second;
}

absl::Status WriteScenario(const std::string& path, bool force, const std::string& text) {
  SUMONCE_ASSIGN_OR_RETURN(const auto file, OutputFile::Open(path, force));
  file->stream() << text;
  return file->Commit();
}

}  // namespace

void AddConfigs(CLI::App& app, ConfigFlags& flags) {
  app.add_option("--adapter", flags.adapter,
                 "Of a model's config.json: with this PEFT adapter (adapter_config.json, or its "
                 "folder)")
      ->type_name("PATH");
  app.add_option("--finalizer", flags.finalizer, "Of a config: the finalizer's preset")
      ->type_name("NAME");
  app.add_flag("--no-sequence-parallel", flags.no_sequence_parallel,
               "Of a config: without sequence parallelism");
  app.add_flag("--gather-region", flags.gather_region,
               "Of a config: GatedDeltaNet as mcore-bridge runs it");
  app.add_option(
         "--scenario-out", flags.scenario_out,
         "Of a config: also write it, at the first size, as a scenario file to change and run")
      ->type_name("FILE");
}

std::vector<SelectedRun> TakeConfigs(const ConfigFlags& flags, bool force,
                                     SelectionFlags& selection, std::vector<std::string>& mistakes,
                                     std::ostream& talk) {
  std::vector<SelectedRun> runs;
  std::vector<std::string> configs;
  std::set<std::string> notes;
  std::vector<std::string>& paths = selection.paths;
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(configs), IsConfig);
  paths.erase(std::remove_if(paths.begin(), paths.end(), IsConfig), paths.end());
  const auto add = [&](const std::string& mistake) {
    if (std::find(mistakes.begin(), mistakes.end(), mistake) == mistakes.end())
      mistakes.push_back(mistake);
  };
  if (configs.size() > 1 && !flags.scenario_out.empty())
    add("sumonce: error: --scenario-out with several configs, expected one");
  if (configs.empty() && !flags.adapter.empty())
    add("sumonce: error: --adapter without a model, expected its config.json too");
  for (const std::string& config : configs) {
    for (const Overrides& overrides : Products(selection)) {
      const HfScenario read = ScenarioOfHfConfig(
          {.config = config,
           .adapter = flags.adapter,
           .mesh = {.tp = SizeOf(overrides, Axis::kTp), .dp = SizeOf(overrides, Axis::kDp)},
           .sequence_parallel = !flags.no_sequence_parallel,
           .gather_region = flags.gather_region,
           .finalizer = flags.finalizer});
      for (const Mistake& mistake : read.mistakes) add(Format(mistake));
      if (!read.mistakes.empty()) continue;
      ReadResult scenario =
          ReadScenarioText(read.text, config, NameOf(config) + NameSuffix(overrides), overrides);
      for (Mistake& mistake : scenario.mistakes) {
        mistake.location.line = 0;  // of a text that nobody wrote
        add(Format(mistake));
      }
      for (const std::string& note : read.notes) notes.insert(config + ": note: " + note);
      if (!flags.scenario_out.empty() && runs.empty()) {
        const absl::Status written = WriteScenario(flags.scenario_out, force, read.text);
        if (!written.ok()) add(absl::StrCat("sumonce: error: ", written.message()));
      }
      runs.push_back({std::move(scenario.scenario), overrides});
    }
  }
  for (const std::string& note : notes) talk << note << '\n';
  return runs;
}

}  // namespace sumonce
