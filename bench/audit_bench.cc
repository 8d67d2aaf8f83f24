// How fast captures are audited, beside reading the same files and nothing else. The set is made
// once, below SUMONCE_BENCH_DIR (default: the temporary directory), SUMONCE_BENCH_MIB large
// (default 256), and removed at the end: dp 2 x tp 2, everything right, tensors of 16 MiB.
//
// Cold: the files' pages are dropped from the cache before each pass (posix_fadvise), which the
// kernel does for clean pages alone; the set is synced first.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "capture/audit/audit.h"

namespace sumonce::capture {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kRanks = 4;
constexpr int64_t kElements = int64_t{4} << 20;  // of a tensor, float32
constexpr int64_t kTensorBytes = kElements * 4;
constexpr const char* kKinds[] = {"contribution", "finalized", "weight"};

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

class GeneratedSet {
 public:
  GeneratedSet() {
    const char* below = std::getenv("SUMONCE_BENCH_DIR");
    std::string pattern = below ? below : fs::temp_directory_path().string();
    pattern += "/sumonce_audit_bench_XXXXXX";
    dir_ = mkdtemp(pattern.data());
    fs::create_directories(dir_ + "/step-0001");
    const int64_t bytes = FromEnvironment("SUMONCE_BENCH_MIB", 256) << 20;
    params_ = std::max<int64_t>(1, bytes / (kRanks * 3 * kTensorBytes));
    for (int rank = 0; rank < kRanks; ++rank) Write(rank);
    sync();
  }
  ~GeneratedSet() { fs::remove_all(dir_); }

  const std::string& dir() const { return dir_; }
  int64_t bytes() const { return params_ * kRanks * 3 * kTensorBytes; }
  std::string PathOf(int rank) const {
    return dir_ + "/step-0001/rank-0000" + std::to_string(rank) + ".safetensors";
  }
  void DropFromCache() const {
    for (int rank = 0; rank < kRanks; ++rank) {
      const int fd = open(PathOf(rank).c_str(), O_RDONLY);
      fdatasync(fd);
      posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      close(fd);
    }
  }

 private:
  // Between -1 and 1 in steps of 2^-12, so that the mean of two is exact.
  static float ValueOf(uint64_t seed, int64_t i) {
    uint64_t x = (seed << 32) ^ static_cast<uint64_t>(i);
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15;
    return static_cast<float>(static_cast<int64_t>(x >> 51) - 4096) / 4096.0f;
  }

  // Ranks 0 and 1 are tp 0 and 1 of dp 0.
  void Write(int rank) const {
    const int tp = rank % 2, dp = rank / 2;
    json header, params = json::object(), layout = json::object();
    int64_t at = 0;
    for (int64_t p = 0; p < params_; ++p) {
      const std::string name = "decoder.layers." + std::to_string(p) + ".mlp.linear_fc1.weight";
      params[name] = {{"shape", {1024, kElements / 1024}}, {"dtype", "float32"}};
      layout[name] = {{"dim", 0}};
      for (const char* kind : kKinds) {
        header[std::string(kind) + "/" + name] = {{"dtype", "F32"},
                                                  {"shape", {1024, kElements / 1024}},
                                                  {"data_offsets", {at, at + kTensorBytes}}};
        at += kTensorBytes;
      }
    }
    const json mesh = {{"tp", {{"size", 2}, {"coordinate", tp}}},
                       {"dp", {{"size", 2}, {"coordinate", dp}}}};
    header["__metadata__"] = {{"format", "sumonce-capture"},
                              {"version", "1"},
                              {"step", "1"},
                              {"rank", std::to_string(rank)},
                              {"world_size", "4"},
                              {"mesh", mesh.dump()},
                              {"params", params.dump()},
                              {"layout", layout.dump()},
                              {"ddp", R"({"gradient_scaling_factor": 0.5})"}};
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    std::vector<float> contribution(kElements), finalized(kElements), weight(kElements);
    for (int64_t i = 0; i < kElements; ++i) {
      const float other = ValueOf(tp * 2 + 1 - dp, i);
      contribution[i] = ValueOf(tp * 2 + dp, i);
      finalized[i] = 0.5f * (contribution[i] + other);
      weight[i] = ValueOf(16 + tp, i);
    }
    std::ofstream file(PathOf(rank), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << text;
    for (int64_t p = 0; p < params_; ++p) {
      for (const auto* values : {&contribution, &finalized, &weight})
        file.write(reinterpret_cast<const char*>(values->data()), kTensorBytes);
    }
    if (!file) std::abort();
  }

  std::string dir_;
  int64_t params_ = 0;
};

const GeneratedSet& Set() {
  static const GeneratedSet set;
  return set;
}

// Two threads, each every other file, into 1 MiB that is not looked at.
void ReadAll() {
  const auto read_every_other = [](int first) {
    std::vector<char> buffer(1 << 20);
    for (int rank = first; rank < kRanks; rank += 2) {
      const int fd = open(Set().PathOf(rank).c_str(), O_RDONLY);
      posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
      while (read(fd, buffer.data(), buffer.size()) > 0) {
      }
      close(fd);
    }
  };
  std::thread other(read_every_other, 1);
  read_every_other(0);
  other.join();
}

void AuditAll() {
  const auto audit = AuditCapture(Set().dir(), {});
  if (!audit.ok()) std::abort();
  for (const AuditedParam& param : audit->params) {
    if (param.verdict.outcome != Outcome::kRight) std::abort();
  }
}

// That this process has asked the system for so far (proc(5): rchar).
int64_t BytesRead() {
  std::ifstream file("/proc/self/io");
  std::string key;
  int64_t bytes = 0;
  file >> key >> bytes;
  return bytes;
}

// Passes over the whole set: bytes of it a second of real time, how much of it a pass reads, and
// the process's peak of memory.
void Passes(benchmark::State& state, void (*pass)(), bool cold) {
  Set();
  const int64_t before = BytesRead();
  for (auto _ : state) {
    if (cold) {
      state.PauseTiming();
      Set().DropFromCache();
      state.ResumeTiming();
    }
    pass();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * Set().bytes());
  state.counters["read_share"] = static_cast<double>(BytesRead() - before) /
                                 static_cast<double>(state.iterations() * Set().bytes());
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MiB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}

void BM_AuditWarm(benchmark::State& state) {
  AuditAll();
  Passes(state, AuditAll, false);
}
void BM_ReadWarm(benchmark::State& state) { Passes(state, ReadAll, false); }
void BM_AuditCold(benchmark::State& state) { Passes(state, AuditAll, true); }
void BM_ReadCold(benchmark::State& state) { Passes(state, ReadAll, true); }
BENCHMARK(BM_AuditWarm)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReadWarm)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_AuditCold)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReadCold)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sumonce::capture
