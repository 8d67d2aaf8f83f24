// Flags that several verbs take. Their values are checked while parsing: what makes no sense throws
// CLI::ValidationError, which names the flag, the value, what is expected and, if there is one, the
// nearest choice.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "cli/command_line.h"
#include "report/formats.h"

namespace sumonce {

// Which scenarios, and on which meshes.
struct SelectionFlags {
  std::vector<std::string> paths;  // as given; empty: DefaultScenarioPaths
  std::string filter = "*";
  std::map<Axis, std::vector<int>> axes;  // --tp 2,4,8
  std::optional<uint64_t> seed;
};
void AddPaths(CLI::App& app, SelectionFlags& flags);
void AddFilter(CLI::App& app, SelectionFlags& flags);
void AddAxes(CLI::App& app, SelectionFlags& flags);
void AddSeed(CLI::App& app, SelectionFlags& flags);
// --at tp=4,dp=2: one size of each axis named.
void AddAt(CLI::App& app, SelectionFlags& flags);

// Where the results go.
struct FormatSpec {
  const ReportFormat* format = nullptr;
  std::string path;  // empty: stdout
};
enum class ColorChoice { kAuto, kAlways, kNever };
struct OutputFlags {
  std::vector<FormatSpec> formats;  // empty: the console on stdout
  ColorChoice color = ColorChoice::kAuto;
  bool force = false;
};
void AddOutput(CLI::App& app, OutputFlags& flags);

// An unsigned 64-bit number.
void AddNumber(CLI::App& app, const std::string& flag, const std::string& description,
               const std::function<void(uint64_t)>& take);

// Sizes from 1, like 4 or 2,4,8.
void AddSizes(CLI::App& app, const std::string& flag, const std::string& description,
              std::vector<int>& sizes);

// A number of bytes up to `most`, whole GiB: 4, 64K, 16M, 1G (powers of 1024).
void AddBytes(CLI::App& app, const std::string& flag, const std::string& description, int64_t most,
              int64_t& bytes);

// One of a few words.
void AddChoice(CLI::App& app, const std::string& flag, const std::string& description,
               const std::vector<std::string>& choices,
               const std::function<void(const std::string&)>& take);

}  // namespace sumonce
