#include "comm/transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce {

absl::Status CanRun(const Transport& transport, int world_size) {
  SUMONCE_RETURN_IF_ERROR(transport.probe());
  const int capacity = transport.capacity ? transport.capacity() : transport.max_world_size;
  if (world_size <= capacity) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(transport.name, " can run ", capacity,
                                             capacity == 1 ? " rank" : " ranks", " here, and ",
                                             world_size,
                                             " are asked for; take a smaller mesh (--tp, --dp, "
                                             "...; of bench --ranks) or a larger machine"));
}

void TransportRegistry::Add(Transport transport) {
  const std::string name = transport.name;
  const bool added = transports_.emplace(name, std::move(transport)).second;
  SUMONCE_CHECK(added) << "transport '" << name << "' is registered twice";
}

absl::StatusOr<const Transport*> TransportRegistry::Find(const std::string& name) const {
  const auto found = transports_.find(name);
  if (found != transports_.end()) return &found->second;
  const auto append_name = [](std::string* out, const auto& entry) { out->append(entry.first); };
  return absl::NotFoundError(absl::StrCat(
      "no transport '", name, "'; there are: ", absl::StrJoin(transports_, ", ", append_name)));
}

const TransportRegistry& Transports() {
  static const TransportRegistry& registry = *[] {
    auto* filled = new TransportRegistry;
    RegisterAllTransports(*filled);
    return filled;
  }();
  return registry;
}

}  // namespace sumonce
