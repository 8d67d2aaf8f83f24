#include "trace/conditions.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::trace {
namespace {

// "decoder.layers.*.mlp.linear_fc1.weight" of "decoder.layers.7.mlp.linear_fc1.weight": layers
// repeat.
std::string Repeated(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    if (!digit) text += name[i];
    if (digit && !text.ends_with('*')) text += '*';
  }
  return text;
}

void AddSections(Prover& prover, std::vector<std::string>& conditions) {
  std::map<std::string, int> counts;
  for (const auto& [param, value] : prover.targets()) {
    if (!value.is(Layout::kShard)) continue;
    const int count = prover.sections().CountOf(value.strip);
    const std::string what =
        absl::StrCat(value.cut.dim == 0 ? "rows" : "columns", " of ", Repeated(param));
    if (count > 1) counts[what] = std::max(counts[what], count);
  }
  for (const auto& [what, count] : counts) {
    conditions.push_back(
        absl::StrCat(what, " are cut in ", count, " sections per rank, in the reference's order"));
  }
}

}  // namespace

std::vector<std::string> ConditionsOf(const Alignment& traces, Prover& prover) {
  std::vector<std::string> conditions;
  const int n = traces.size();
  if (prover.common_extent() > 0)
    conditions.push_back(absl::StrCat("tp divides ", prover.common_extent()));
  AddSections(prover, conditions);
  int undigested = 0;
  std::set<std::string> inputs;
  for (const TensorInfo& tensor : traces.base().tensors)
    undigested += tensor.outside && tensor.digest.empty();
  for (const Alignment::Named& named : traces.named()) {
    const bool given = named.kind == TensorKind::kInput || named.kind == TensorKind::kBuffer;
    if (given) inputs.insert(std::string(named.name));
  }
  if (!inputs.empty()) {
    conditions.push_back(
        absl::StrCat("every rank is given the same ", absl::StrJoin(inputs, ", ")));
  }
  if (undigested > 0) {
    conditions.push_back(absl::StrCat(undigested, undigested == 1 ? " tensor" : " tensors",
                                      " from outside, without a digest, the same on every rank "
                                      "and at every size"));
  }
  conditions.push_back(absl::StrCat("traced at tp 1, ", n, ", ", 2 * n));
  conditions.push_back("one microbatch, one step from equal replicas, no dropout");
  return conditions;
}

}  // namespace sumonce::trace
