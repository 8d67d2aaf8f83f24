// sumonce doctor: versions, and which transports can run on this machine.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "cli/build_info.h"
#include "cli/exit_code.h"
#include "cli/verb.h"
#include "comm/transport.h"
#include "report/text_table.h"

namespace sumonce {
namespace {

std::string StateOf(const Transport& transport) {
  const absl::Status probe = transport.probe();
  if (!probe.ok()) return std::string(FromAbsl(probe.message()));
  if (transport.processes) {
    return "can run here: a process per rank, `mpirun -np N sumonce run ... --comm " +
           transport.name + "`";
  }
  std::vector<std::string> executors;
  for (const ExecutorKind kind : transport.executors) executors.emplace_back(Name(kind));
  const int capacity = transport.capacity ? transport.capacity() : transport.max_world_size;
  return absl::StrCat("can run here: up to ", capacity, " ranks, ",
                      absl::StrJoin(executors, " or "));
}

int Doctor(Context& context) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, transport] : Transports().all())
    rows.push_back({name, StateOf(transport)});
  context.io.out << VersionText() << "\ntransports\n" << AlignedRows(rows, 2, 2);
  return kAsExpected;
}

}  // namespace

VerbAction DeclareDoctor(CLI::App&) { return Doctor; }

}  // namespace sumonce
