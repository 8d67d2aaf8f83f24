// The words of reports and scenarios: what each means, as a formula where there is one, a scenario
// that shows it, and what cures it. `sumonce explain` prints them.
#pragma once

#include <string>
#include <vector>

namespace sumonce {

struct GlossaryEntry {
  std::string kind;      // "verdict", "mechanism", "mark", "preset", "rule", "layer", "adapter",
                         // "operation", "class", "state", "defect", "fault"
  std::string word;      // "DOUBLE_SUM", "sequence_parallel", "megatron_core_0_16", "RmsNorm"
  std::string says;      // one sentence
  std::string formula;   // "" where there is none
  std::string cure;      // "" where there is nothing to cure
  std::string shown_by;  // a shipped scenario; "" if none shows it
  std::vector<std::string>
      details;  // lines: of a preset its rules, of an operation its declaration
};

// All of them, by kind and then as they are usually read. Presets, rules and operations come from
// their registries.
std::vector<GlossaryEntry> Glossary();

// Parts of it.
std::vector<GlossaryEntry> GlossaryOfVerdicts();
std::vector<GlossaryEntry> GlossaryOfModels();    // marks, layers
std::vector<GlossaryEntry> GlossaryOfAdapters();  // what inspect finds
std::vector<GlossaryEntry> GlossaryOfFinalizers();
std::vector<GlossaryEntry> GlossaryOfOperations();
std::vector<GlossaryEntry> GlossaryOfDefects();  // also the classes of gradients

}  // namespace sumonce
