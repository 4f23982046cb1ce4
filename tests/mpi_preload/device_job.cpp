// A job with its gradients in the memory of a GPU (fake_cuda.cpp). Without a copy in host memory it dies of SIGSEGV.
#include "tests/mpi_preload/plain_job.hpp"

extern "C" {
void* fake_device_memory(std::size_t bytes);
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes);
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes);
}

namespace {

constexpr std::size_t kSegment = 20011;

std::uint64_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

void check(const float* device, std::size_t first, std::size_t count) {
  std::vector<float> result(count);
  cuMemcpyDtoH_v2(result.data(), address(device), count * sizeof(float));
  job::compare(result.data(), first, count, job::g_size);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &job::g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job::g_size);
  const std::size_t total = kSegment * static_cast<std::size_t>(job::g_size);
  auto* device = static_cast<float*>(fake_device_memory(2 * total * sizeof(float)));
  float* other = device + total;
  const std::vector<float> mine = job::values_of(job::g_rank, total);
  const auto fill = [&] { cuMemcpyHtoD_v2(address(device), mine.data(), total * sizeof(float)); };
  const int count = static_cast<int>(total);
  const int segment = static_cast<int>(kSegment);
  const std::size_t first = kSegment * static_cast<std::size_t>(job::g_rank);

  fill();
  MPI_Allreduce(device, other, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  check(other, 0, total);
  std::vector<float> host(total);
  MPI_Allreduce(device, host.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  job::compare(host.data(), 0, total, job::g_size);
  MPI_Allreduce(MPI_IN_PLACE, device, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  check(device, 0, total);
  fill();
  MPI_Reduce_scatter_block(device, other, segment, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  check(other, first, kSegment);
  MPI_Reduce_scatter_block(MPI_IN_PLACE, device, segment, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  check(device, first, kSegment);

  int failures = 0;
  MPI_Reduce(&job::g_failures, &failures, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (job::g_rank == 0 && failures == 0) {
    std::printf("device ok\n");
  }
  MPI_Finalize();
  return failures;
}
