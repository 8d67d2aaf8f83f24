// Reads a scenario file (textproto, proto/scenario.proto) into a Scenario, and finds all mistakes
// of it at once: syntax, unknown fields, missing and impossible values, sizes that do not divide,
// unknown finalizers, rules, layers, globs that match no parameter, module or operation of the
// model on this mesh.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/scenario.h"

namespace sumonce {

// One mistake of the user: printed as "file:line:col: error: message", with the value, what was
// expected and the cure.
struct Mistake {
  Location location;
  std::string message;
};
std::string Format(const Mistake& mistake);

struct ReadResult {
  Scenario scenario;
  std::vector<Mistake> mistakes;  // empty: the scenario is valid
  bool ok() const { return mistakes.empty(); }
};

// What the command line sets over the file.
struct Overrides {
  std::map<Axis, int> axes;  // --tp 8
  std::optional<uint64_t> seed;
};

// `name`: the scenario's name, "area/file". Never throws, never reads more than 16 MiB.
ReadResult ReadScenario(const std::string& path, const std::string& name,
                        const Overrides& overrides);

// The same of a text that is no file's; `path` stands in its mistakes.
ReadResult ReadScenarioText(const std::string& text, const std::string& path,
                            const std::string& name, const Overrides& overrides);

// All scenario files under the given files and directories, as (path, name), sorted; mistakes for
// what is not there.
struct ScenarioFile {
  std::string path;
  std::string name;
};
std::vector<ScenarioFile> FindScenarios(const std::vector<std::string>& paths,
                                        std::vector<Mistake>& mistakes);

}  // namespace sumonce
