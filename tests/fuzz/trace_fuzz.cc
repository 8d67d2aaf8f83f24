// The trace reader: any lines are refused with a message, or give a program.
#include "tests/fuzz/file_of.h"
#include "trace/reader/program_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sumonce::fuzz::FileOf file(data, size);
  const auto program = sumonce::trace::ReadProgram(file.path());
  if (!program.ok() && program.status().message().empty()) __builtin_trap();
  return 0;
}
