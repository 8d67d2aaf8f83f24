// Which tensors of the golden files no test has read, and which results (out.*, grad.*) no test has
// compared anything with. Arguments: the folder of the files, the list of those that wait, the log
// that tests/golden.h wrote. A line for each tensor that is missing; exit 1 then, or when the list
// names what is not there.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "base/safetensors.h"
#include "base/text.h"

namespace sumonce {
namespace {

constexpr char kSuffix[] = ".f64.safetensors";

using Tensors = std::set<std::string>;
using Files = std::map<std::string, Tensors>;

struct Waiting {
  std::string file, tensor, what;  // globs; what they wait for
};

struct Log {
  Files read, compared;
};

// "read file tensor", "compared file tensor".
Log ReadLog(const char* path) {
  std::ifstream log(path);
  Log files;
  for (std::string what, file, tensor; log >> what >> file >> tensor;)
    (what == "compared" ? files.compared : files.read)[file].insert(tensor);
  return files;
}

bool Holds(const Files& files, const std::string& file, const std::string& tensor) {
  const auto found = files.find(file);
  return found != files.end() && found->second.contains(tensor);
}

// What a layer gives; all else, gradients from above too, is what it is given.
bool IsResult(const std::string& tensor) {
  if (tensor.starts_with("in.") || tensor.starts_with("up.")) return false;
  return tensor.starts_with("out.") || tensor.starts_with("grad.") ||
         tensor.find(".out.") != tensor.npos || tensor.find(".grad.") != tensor.npos;
}

std::vector<Waiting> ReadWaiting(const char* path) {
  std::ifstream list(path);
  std::vector<Waiting> waiting;
  for (std::string line; std::getline(list, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Waiting entry;
    words >> entry.file >> entry.tensor >> std::ws;
    std::getline(words, entry.what);
    waiting.push_back(entry);
  }
  return waiting;
}

Files Stored(const char* folder) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(kSuffix)) continue;
    const auto reader = SafetensorsReader::Open(entry.path());
    if (!reader.ok()) {
      std::cerr << reader.status() << "\n";
      std::exit(1);
    }
    Tensors& tensors = files[name.substr(0, name.size() + 1 - sizeof kSuffix)];
    for (const auto& [tensor, info] : reader->tensors()) tensors.insert(tensor);
  }
  return files;
}

const Waiting* WaitsFor(const std::vector<Waiting>& waiting, const std::string& file,
                        const std::string& tensor) {
  for (const Waiting& entry : waiting) {
    if (GlobMatches(entry.file, file) && GlobMatches(entry.tensor, tensor)) return &entry;
  }
  return nullptr;
}

int Walk(const char* folder, const char* list, const char* log) {
  const std::vector<Waiting> waiting = ReadWaiting(list);
  const Log logged = ReadLog(log);
  std::map<const Waiting*, int> seen;
  int missing = 0, consumed = 0, compared = 0;
  const Files stored = Stored(folder);
  for (const auto& [file, tensors] : stored) {
    for (const std::string& tensor : tensors) {
      const bool result = IsResult(tensor);
      if (const Waiting* entry = WaitsFor(waiting, file, tensor)) {
        ++seen[entry];
      } else if (!Holds(logged.read, file, tensor)) {
        ++missing;
        std::cout << "no test reads " << file << " " << tensor << "\n";
      } else if (result && !Holds(logged.compared, file, tensor)) {
        ++missing;
        std::cout << "no test compares anything with " << file << " " << tensor << "\n";
      } else {
        ++consumed;
        compared += result;
      }
    }
  }
  for (const Waiting& entry : waiting) {
    if (seen[&entry] > 0) continue;
    ++missing;
    std::cout << list << " names " << entry.file << " " << entry.tensor << ", which is not there\n";
  }
  int waits = 0;
  for (const auto& [entry, count] : seen) waits += count;
  std::cout << stored.size() << " files: " << consumed << " tensors read, " << compared
            << " of them results that are compared, " << waits << " waiting, " << missing
            << " missing\n";
  return missing == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sumonce

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: golden_walk FOLDER WAITING LOG\n";
    return 4;
  }
  return sumonce::Walk(argv[1], argv[2], argv[3]);
}
