#include "capture/lint/upstream.h"

#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::lint {
namespace {

std::string InEveryLayer(const std::string& operation) {
  constexpr std::string_view kLayers = "decoder.layers.";
  if (!operation.starts_with(kLayers)) return operation;
  return absl::StrCat("decoder.layers.*", operation.substr(operation.find('.', kLayers.size())));
}

}  // namespace

const State* MendedProofs::StateOf(const std::string& operation, const std::string& ours) {
  if (operation.empty()) return nullptr;
  auto [run, added] = runs_.try_emplace(operation);
  if (added) {
    const std::vector<Edit> edits = {{.kind = CollectiveEdit{.operation = InEveryLayer(operation),
                                                             .direction = Direction::kBackward,
                                                             .map = Map::kSum,
                                                             .ranks = {}},
                                      .location = {}}};
    run->second = Prove(map_.scenario, edits);
  }
  const auto state = run->second.before.find(ours);
  const bool mended = state != run->second.before.end() && state->second.ok();
  return mended ? &state->second : nullptr;
}

std::string MendedProofs::Says(const std::string& operation) const {
  const std::string place = operation.substr(0, operation.find('/'));
  return absl::StrCat(
      "sum the gradient of ", AsInManifest(place, map_),
      " over tp in backward (copy_to_tensor_model_parallel_region), in every layer");
}

}  // namespace sumonce::lint
