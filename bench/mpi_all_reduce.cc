// MPI_Allreduce as a peer of the all-reduce benchmark, where the ranks are processes:
//   mpirun -np 2 sumonce_mpi_all_reduce BYTES...
// Sums float32 in place, as many calls per measurement as the threads' benchmark makes in a batch,
// and prints Google Benchmark's JSON with one entry per size: the time of one call on rank 0.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/buffers.h"

namespace sumonce::bench {
namespace {

constexpr int kMeasurements = 5;

// Microseconds per call, the median of a few measurements after one that does not count.
double Measure(int64_t bytes) {
  const ZeroBuffer buffer = MakeZeroBuffer(bytes);
  const int64_t calls = CallsPerBatch(bytes);
  std::vector<double> times_us;
  for (int k = 0; k < kMeasurements + 1; ++k) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int64_t call = 0; call < calls; ++call) {
      MPI_Allreduce(MPI_IN_PLACE, buffer.get(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (k > 0) times_us.push_back((MPI_Wtime() - begin) * 1e6 / static_cast<double>(calls));
  }
  std::nth_element(times_us.begin(), times_us.begin() + kMeasurements / 2, times_us.end());
  return times_us[kMeasurements / 2];
}

int Main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank == 0) std::printf("{\"benchmarks\": [");
  for (int k = 1; k < argc; ++k) {
    const int64_t bytes = std::atoll(argv[k]);
    if (bytes < 4) {
      std::fprintf(stderr, "'%s' is no size: expected bytes, 4 or more\n", argv[k]);
      MPI_Abort(MPI_COMM_WORLD, 4);
    }
    const double time_us = Measure(bytes);
    if (rank != 0) continue;
    std::printf(
        "%s\n  {\"name\": \"mpi/float32/ranks:%d/bytes:%lld/real_time\", "
        "\"real_time\": %.4f, \"time_unit\": \"us\"}",
        k > 1 ? "," : "", ranks, static_cast<long long>(bytes), time_us);
  }
  if (rank == 0) std::printf("\n]}\n");
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace sumonce::bench

int main(int argc, char** argv) { return sumonce::bench::Main(argc, argv); }
