// A trace file becomes a Program: every record checked, the first mistake reported with file, line,
// value and cure. Reads a file once, in one pass, and keeps nothing of it but the program.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "trace/program.h"
#include "trace/reader/json_line.h"

namespace sumonce::trace {

// Takes the records of one trace, in their order. InvalidArgument: what is wrong with a record,
// without its place.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::string place);
  absl::Status Add(const JsonLine& line);
  // The program; nothing can be added afterwards.
  absl::StatusOr<Program> Finish();

 private:
  using Json = JsonLine::Value;
  absl::Status AddHeader(const JsonLine& line);
  absl::Status AddParams(const JsonLine& line, const Json& params);
  absl::Status AddTensor(const JsonLine& line);
  absl::Status AddOperation(const JsonLine& line);
  absl::Status ReadArgument(const JsonLine& line, const Json& json, Argument& argument);
  absl::Status ReadMarker(const JsonLine& line, const Json& object, Argument& argument);
  absl::Status CheckTensor(int64_t id) const;
  std::string_view Keep(std::string_view text);

  Program program_;
  absl::flat_hash_map<std::string_view, std::string_view> kept_;
  bool has_header_ = false;
  int64_t defined_ = 0;     // tensors
  int64_t announced_ = -1;  // operations, by the header; -1: it does not say
};

// `path`: JSON lines, plain or gzip. The errors of LineSource, and "path:line: error: ...".
absl::StatusOr<Program> ReadProgram(const std::string& path);

}  // namespace sumonce::trace
