#include "cli/default_paths.h"

#include <filesystem>

namespace sumonce {

std::vector<std::string> DefaultScenarioPaths() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory("scenarios", ignored)) return {"scenarios"};
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = program.parent_path().parent_path() / SUMONCE_INSTALLED_SCENARIOS;
  if (!program.empty() && fs::is_directory(installed, ignored)) return {installed.string()};
  return {SUMONCE_SOURCE_SCENARIOS};
}

}  // namespace sumonce
