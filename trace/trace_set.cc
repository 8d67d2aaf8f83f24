#include "trace/trace_set.h"

#include <charconv>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "trace/reader/program_reader.h"

namespace sumonce::trace {
namespace {

namespace fs = std::filesystem;

struct TraceName {
  std::string axis;
  int size = 0;
  int rank = 0;
};

bool TakeNumber(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(end - text.data());
  return true;
}

// "tp2.rank0.jsonl.gz"; nothing: no trace.
std::optional<TraceName> ParseName(std::string_view text) {
  TraceName name;
  const size_t digits = text.find_first_of("0123456789");
  if (digits == std::string_view::npos || digits == 0) return std::nullopt;
  name.axis = text.substr(0, digits);
  text.remove_prefix(digits);
  if (!TakeNumber(text, name.size) || !text.starts_with(".rank")) return std::nullopt;
  text.remove_prefix(5);
  if (!TakeNumber(text, name.rank)) return std::nullopt;
  if (text != ".jsonl" && text != ".jsonl.gz") return std::nullopt;
  return name;
}

using Files = std::map<std::pair<int, int>, std::string>;  // size and rank -> path

absl::StatusOr<Files> FindFiles(const std::string& dir) {
  std::error_code error;
  Files files;
  if (fs::is_regular_file(dir, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": error: is a file; a proof needs the folder of all four traces"));
  }
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    const auto name = ParseName(at->path().filename().string());
    if (!name) continue;
    if (!fs::is_regular_file(at->path(), error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(at->path().string(), ": error: is no regular file"));
    }
    const auto [found, added] = files.emplace(std::pair(name->size, name->rank), at->path());
    if (!added) {
      return absl::InvalidArgumentError(absl::StrCat(found->second, ": error: also there as ",
                                                     at->path().string(), "; keep one of the two"));
    }
  }
  if (error) return absl::InvalidArgumentError(absl::StrCat(dir, ": error: ", error.message()));
  if (files.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        dir,
        ": error: holds no trace; expected tp2.rank0.jsonl.gz, tp2.rank1.jsonl.gz, "
        "tp4.rank0.jsonl.gz and tp1.rank0.jsonl.gz (python -m sumonce_trace makes them)"));
  }
  return files;
}

absl::StatusOr<Program> Read(const Files& files, int size, int rank) {
  const std::string& path = files.at({size, rank});
  SUMONCE_ASSIGN_OR_RETURN(Program program, ReadProgram(path));
  if (program.size != size || program.rank != rank) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": error: its header says size ",
                                                   program.size, " and rank ", program.rank,
                                                   "; name the file after them"));
  }
  return program;
}

absl::Status CheckAxis(const Program& program, const Program& first) {
  if (program.axis == "tp" && first.axis == "tp") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(program.place, ": error: traced along '", ToAbsl(program.axis),
                   "'; only tp is proved (docs/TRACE.md says how to trace around other axes)"));
}

}  // namespace

absl::StatusOr<TraceSet> ReadTraces(const std::string& dir) {
  SUMONCE_ASSIGN_OR_RETURN(const Files files, FindFiles(dir));
  TraceSet set;
  fs::path path = fs::path(dir).lexically_normal();
  set.name = path.has_filename() ? path.filename() : path.parent_path().filename();
  const auto first = files.lower_bound({2, 0});
  if (first == files.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        dir, ": error: holds no trace of a sharded job; add all ranks at tp 2 and rank 0 at tp 4"));
  }
  const int size = first->first.first;
  for (int rank = 0; rank < size; ++rank) {
    if (!files.contains({size, rank})) {
      return absl::InvalidArgumentError(
          absl::StrCat(dir, ": error: rank ", rank, " of size ", size,
                       " is missing; a proof compares all ranks of the smallest size"));
    }
    SUMONCE_ASSIGN_OR_RETURN(Program program, Read(files, size, rank));
    set.ranks.push_back(std::move(program));
    SUMONCE_RETURN_IF_ERROR(CheckAxis(set.ranks.back(), set.ranks[0]));
  }
  for (auto [at, other] : {std::pair(2 * size, &set.twice), std::pair(1, &set.whole)}) {
    if (!files.contains({at, 0})) continue;
    SUMONCE_ASSIGN_OR_RETURN(*other, Read(files, at, 0));
    SUMONCE_RETURN_IF_ERROR(CheckAxis(**other, set.ranks[0]));
  }
  return set;
}

}  // namespace sumonce::trace
