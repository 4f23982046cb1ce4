// Does what jobs do although MPI does not require it, and makes many calls that must not make memory grow.
#include <numeric>
#include <string>

#include "tests/mpi_preload/plain_job.hpp"

// docs/how-to/drop-in-mpi.md gives this declaration to jobs.
extern "C" void gradwire_name(const void* buffer, const char* name) __attribute__((weak));

namespace job {

// Checks that the launcher starts one world.
void two_ranks() { JOB_CHECK(g_size == 2); }

// Results overlap the input, at all distances that matter.
void overlap() {
  const std::size_t total = kCount * static_cast<std::size_t>(g_size);
  const std::size_t first = kCount * static_cast<std::size_t>(g_rank);
  std::vector<int> counts(static_cast<std::size_t>(g_size), kCount);
#ifdef OPEN_MPI
  const std::vector<std::size_t> distances{0, 5, first, total - 1};
#else
  const std::vector<std::size_t> distances{5, first + 1, total - 1};  // MPICH refuses 0
#endif
  for (const std::size_t distance : distances) {
    std::vector<float> values = values_of(g_rank, total + kCount);
    MPI_Reduce_scatter_block(values.data(), values.data() + distance, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    compare(values.data() + distance, first, kCount, g_size);
    values = values_of(g_rank, total + kCount);
    MPI_Reduce_scatter(values.data(), values.data() + distance, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    compare(values.data() + distance, first, kCount, g_size);
  }
  std::vector<float> values = values_of(g_rank, kCount + 5);
  MPI_Allreduce(values.data(), values.data() + 5, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  compare(values.data() + 5, 0, kCount, g_size);
}

// The result is where the input is, without MPI_IN_PLACE: the library decides what happens.
void aliased() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::vector<float> values = values_of(g_rank, kCount * static_cast<std::size_t>(g_size));
  std::vector<int> counts(static_cast<std::size_t>(g_size), kCount);
  const auto tell = [](const char* what, int code) {
    int error_class = 0;
    MPI_Error_class(code, &error_class);
    if (g_rank == 0) {
      std::printf("error of %s: class %d\n", what, error_class);
    }
  };
  float* const at = values.data();
  for (int round = 0; round < 2; ++round) {
    tell("an aliased sum", MPI_Allreduce(at, at, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    tell("aliased segments", MPI_Reduce_scatter(at, at, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    tell("aliased blocks", MPI_Reduce_scatter_block(at, at, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
  }
}

// Makes only calls with requests: the ranks never make a blocking call that could be compressed.
void requests_only() {
  std::vector<float> values = values_of(g_rank, kCount);
  for (int call = 0; call < 5; ++call) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
#if MPI_VERSION >= 4
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce_c(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Allreduce_init(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
#endif
}

void fortran_reals() {
  std::vector<float> values = values_of(g_rank, kCount);
  MPI_Allreduce(MPI_IN_PLACE, values.data(), kCount, MPI_REAL, MPI_SUM, MPI_COMM_WORLD);
  compare(values.data(), 0, kCount, g_size);
  std::vector<double> doubles = ramp<double>(kCount);
  MPI_Allreduce(MPI_IN_PLACE, doubles.data(), kCount, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < doubles.size(); ++i) {
    JOB_CHECK(doubles[i] == ramp_sum<double>(i));
  }
}

// Makes small calls on more communicators in turn than a thread remembers, and none on MPI_COMM_WORLD itself.
void alternating() {
  std::vector<MPI_Comm> comms(8, MPI_COMM_NULL);
  for (MPI_Comm& comm : comms) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  }
  for (int round = 0; round < 50; ++round) {
    for (MPI_Comm comm : comms) {
      int one = 1;
      MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, comm);
      JOB_CHECK(one == g_size);
    }
  }
  for (MPI_Comm& comm : comms) {
    MPI_Comm_free(&comm);
  }
}

// Names new buffers again and again, and never removes a name.
void many_names() {
  if (gradwire_name == nullptr) {
    return;
  }
  std::vector<char> buffers(300000);
  long before = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::string name = "a name that is too long for the string itself, layer " + std::to_string(i);
    gradwire_name(&buffers[i], name.c_str());
    if (i == 100000) {
      before = resident_kib();
    }
  }
  const long grown = resident_kib() - before;
  JOB_CHECK(grown < 4096);  // 200000 more names take above 20 MiB
  if (g_rank == 0) {
    std::printf("names took %ld KiB more\n", grown);
  }
}

// Uses communicators that live long enough to hold residuals.
void residuals() {
  const std::size_t count = 100003;
  long before = 0;
  for (int round = 0; round < 30; ++round) {
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    std::vector<float> values(count);
    for (int call = 0; call < 20; ++call) {
      values = values_of(g_rank, count);
      MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, copy);
      float loss = 1;  // shows where a step ends
      MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_FLOAT, MPI_SUM, copy);
    }
    MPI_Comm_free(&copy);
    if (round == 9) {
      before = resident_kib();
    }
  }
  const long grown = resident_kib() - before;
  JOB_CHECK(grown < 3072);  // in KiB; 20 communicators hold more than 20 MiB
  if (g_rank == 0) {
    std::printf("20 communicators more took %ld KiB\n", grown);
  }
}

void halves() {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, g_rank, &half);
  if (g_rank % 2 == 0) {
    reduce_on(half);
  }
  MPI_Comm_free(&half);
}

void idle() {}

// The second and third of four calls have NaN on the last rank.
void nonfinite() {
  for (int call = 0; call < 4; ++call) {
    std::vector<float> values = values_of(g_rank, kCount);
    const bool bad = call == 1 || call == 2;
    values[7] = bad && g_rank == g_size - 1 ? NAN : values[7];
    MPI_Allreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    JOB_CHECK(std::isnan(values[7]) == bad);
  }
}

}  // namespace job
