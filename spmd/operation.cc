#include "spmd/operation.h"

#include <utility>

#include "base/status.h"

namespace sumonce {

void OperationRegistry::Add(std::string name, std::vector<OperationExample> examples) {
  SUMONCE_CHECK(!examples.empty()) << name << " has no example: nothing would be proved of it";
  const bool added = operations_.emplace(name, std::move(examples)).second;
  SUMONCE_CHECK(added) << "operation " << name << " is registered twice";
}

const OperationRegistry& Operations() {
  static const OperationRegistry& registry = *[] {
    auto* filled = new OperationRegistry;
    RegisterAllOperations(*filled);
    return filled;
  }();
  return registry;
}

}  // namespace sumonce
