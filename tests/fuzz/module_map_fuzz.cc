// A module map: refused with the places of its mistakes, or read.
#include "capture/lint/module_map.h"
#include "tests/fuzz/file_of.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sumonce::fuzz::FileOf file(data, size);
  const auto map = sumonce::lint::ReadModuleMap(file.path());
  if (!map.ok() && map.status().message().empty()) __builtin_trap();
  if (map.ok()) static_cast<void>(map->Find("decoder.layers.0.mlp", "mine.Mlp"));
  return 0;
}
