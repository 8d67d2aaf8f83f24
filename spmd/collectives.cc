#include "spmd/collectives.h"

namespace sumonce {
namespace {

Value Pair(Tape& tape, Value x, const char* name, Axis axis, MapArgs forward, MapArgs backward) {
  return tape.Communicate(
      {.name = name, .group = tape.GroupOf(axis), .forward = forward, .backward = backward}, x);
}

}  // namespace

Value CopyToRegion(Tape& tape, Value x, Axis axis) {
  return Pair(tape, x, "Copy", axis, {.map = Map::kIdentity}, {.map = Map::kSum});
}

Value ReduceFromRegion(Tape& tape, Value x, Axis axis) {
  return Pair(tape, x, "AllReduce", axis, {.map = Map::kSum}, {.map = Map::kIdentity});
}

Value AllReduceBoth(Tape& tape, Value x, Axis axis) {
  return Pair(tape, x, "AllReduceBoth", axis, {.map = Map::kSum}, {.map = Map::kSum});
}

Value AllGather(Tape& tape, Value x, Axis axis, Dim dim, GatherGrad grad) {
  const Map backward = grad == GatherGrad::kReduceScatter ? Map::kReduceScatter : Map::kSplit;
  return Pair(tape, x, "AllGather", axis, {.map = Map::kAllGather, .dim = dim},
              {.map = backward, .dim = dim});
}

Value ReduceScatter(Tape& tape, Value x, Axis axis, Dim dim) {
  return Pair(tape, x, "ReduceScatter", axis, {.map = Map::kReduceScatter, .dim = dim},
              {.map = Map::kAllGather, .dim = dim});
}

Value ScatterToRegion(Tape& tape, Value x, Axis axis, Dim dim) {
  return Pair(tape, x, "Scatter", axis, {.map = Map::kSplit, .dim = dim},
              {.map = Map::kAllGather, .dim = dim});
}

Value SliceReplicated(Tape& tape, Value x, Axis axis, Dim dim) {
  return Pair(tape, x, "Slice", axis, {.map = Map::kSplit, .dim = dim},
              {.map = Map::kPad, .dim = dim});
}

Value AllToAll(Tape& tape, Value x, Axis axis, Dim from, Dim to) {
  return Pair(tape, x, "AllToAll", axis, {.map = Map::kAllToAll, .dim = from, .other_dim = to},
              {.map = Map::kAllToAll, .dim = to, .other_dim = from});
}

Value OwnerOnly(Tape& tape, Value x, Axis axis) {
  return Pair(tape, x, "Owner", axis, {.map = Map::kOwn}, {.map = Map::kOwn});
}

Value StopMax(Tape& tape, Value x, Axis axis) {
  return tape.Communicate({.name = "StopMax",
                           .group = tape.GroupOf(axis),
                           .forward = {.map = Map::kMax},
                           .backward = {.map = Map::kStop},
                           .vanishes = true},
                          x);
}

std::vector<CollectivePair> CollectivePairs() {
  const Dim s = Dim::kSequence;
  const Dim k = Dim::kKeyHead;
  return {
      {"Copy", {.map = Map::kIdentity}, {.map = Map::kSum}},
      {"AllReduce", {.map = Map::kSum}, {.map = Map::kIdentity}},
      {"AllReduceBoth", {.map = Map::kSum}, {.map = Map::kSum}},
      {"AllGather to R",
       {.map = Map::kAllGather, .dim = s},
       {.map = Map::kReduceScatter, .dim = s}},
      {"AllGather to I", {.map = Map::kAllGather, .dim = s}, {.map = Map::kSplit, .dim = s}},
      {"ReduceScatter", {.map = Map::kReduceScatter, .dim = s}, {.map = Map::kAllGather, .dim = s}},
      {"Scatter", {.map = Map::kSplit, .dim = s}, {.map = Map::kAllGather, .dim = s}},
      {"Slice", {.map = Map::kSplit, .dim = k}, {.map = Map::kPad, .dim = k}},
      {"AllToAll",
       {.map = Map::kAllToAll, .dim = s, .other_dim = k},
       {.map = Map::kAllToAll, .dim = k, .other_dim = s}},
      {"Owner", {.map = Map::kOwn}, {.map = Map::kOwn}},
      {"StopMax", {.map = Map::kMax}, {.map = Map::kStop}, false, "a constant: no gradient flows"},
  };
}

}  // namespace sumonce
