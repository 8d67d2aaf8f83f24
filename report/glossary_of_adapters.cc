#include "capture/inspect/findings.h"
#include "report/glossary.h"

namespace sumonce {

std::vector<GlossaryEntry> GlossaryOfAdapters() {
  std::vector<GlossaryEntry> entries;
  for (int i = 0; i < inspect::kAdapterFaults; ++i) {
    const auto fault = static_cast<inspect::AdapterFault>(i);
    if (fault == inspect::AdapterFault::kNotFinite) continue;  // a mechanism of its own
    GlossaryEntry entry{
        .kind = "adapter", .word = std::string(Name(fault)), .says = std::string(Meaning(fault))};
    if (fault == inspect::AdapterFault::kLoraReplica) {
      entry.cure =
          "mark the replicated factors (sequence_parallel) and train again; the export cannot be "
          "repaired";
      entry.shown_by = "lora/pr_173";
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace sumonce
