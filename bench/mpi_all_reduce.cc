// MPI_Allreduce as a peer of the all-reduce benchmark, where the ranks are processes:
//   mpirun -np 2 sumonce_mpi_all_reduce BYTES...
// Sums float32 in place, in the batches that the threads' benchmark makes, and prints JSON in
// Google Benchmark's form with one entry per size: median_us and best_us, one call's time in the
// median and in the quickest batch.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/buffers.h"

namespace sumonce::bench {
namespace {

constexpr double kMinTimeUs = 50e3;
constexpr int kMinBatches = 5;

// Of one call in each batch.
std::vector<double> MeasureUs(int64_t bytes) {
  const ZeroBuffer buffer = MakeZeroBuffer(bytes);
  const int64_t calls = CallsPerBatch(bytes);
  std::vector<double> times_us;
  double total_us = 0;
  int more = 1;
  for (int batch = 0; more != 0; ++batch) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int64_t call = 0; call < calls; ++call) {
      MPI_Allreduce(MPI_IN_PLACE, buffer.get(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double elapsed_us = (MPI_Wtime() - begin) * 1e6;
    total_us += elapsed_us;
    if (batch > 0) times_us.push_back(elapsed_us / static_cast<double>(calls));  // 0: page faults
    more = batch < kMinBatches || total_us < kMinTimeUs ? 1 : 0;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  return times_us;
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
    const std::vector<double> times_us = MeasureUs(bytes);
    if (rank != 0) continue;
    std::printf(
        "%s\n  {\"name\": \"mpi/float32/ranks:%d/bytes:%lld/real_time\", "
        "\"median_us\": %.4f, \"best_us\": %.4f}",
        k > 1 ? "," : "", ranks, static_cast<long long>(bytes), MedianUs(times_us),
        BestUs(times_us));
  }
  if (rank == 0) std::printf("\n]}\n");
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace sumonce::bench

int main(int argc, char** argv) { return sumonce::bench::Main(argc, argv); }
