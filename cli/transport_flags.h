// The flags that say what runs between the ranks, and those that describe a larger machine to a
// cost model.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "comm/transport.h"
#include "cost/cost_model.h"

namespace sumonce {

struct TransportFlags {
  std::string name = "in_process";
  ExecutorOptions executor;
  bool native_sums = false;

  std::string Describe() const;  // "in_process threads", "mpi", "mpi native sums"
  RunOptions Options() const;    // world_size is left to the caller
};
// --comm, --executor, --schedule, --native-sums.
void AddTransport(CLI::App& app, TransportFlags& flags);

// Whether this process is the one that talks: process 0, or the only one.
bool IsFirstProcess(const Transport& transport);

// Nodes of so many ranks, joined by a link.
struct NodeFlags {
  int ranks = 0;  // 0: one level
  double latency_us = 5;
  double gigabytes_per_second = 25;

  CostModel Over(const CostModel& model) const;
  // InvalidArgument: `world` ranks are more than a node's and do not fill nodes.
  absl::Status CheckFilledBy(int world) const;
  std::string Describe() const;  // ", 8 a node, nodes joined by 5 us and 25 GB/s"; "" for one level
};
// --node-ranks, --link-latency-us, --link-bandwidth.
void AddNodes(CLI::App& app, NodeFlags& flags);

}  // namespace sumonce
