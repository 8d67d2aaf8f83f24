// Views: another geometry of the same storage. What they hold follows from memory, by the one rule
// of trace/strides.h.
#include "trace/declaration.h"

namespace sumonce::trace {

void RegisterViews(DeclarationTable& table) {
  table.AddViews({"view", "_unsafe_view", "_reshape_alias", "t", "transpose", "permute",
                  "unsqueeze", "squeeze", "expand", "slice", "select", "split", "split_with_sizes",
                  "unbind", "as_strided", "lift_fresh", "detach", "alias"});
}

}  // namespace sumonce::trace
