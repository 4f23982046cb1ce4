// Tests communicators that come and go, two groups, threads, and errors.
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/mpi_preload/plain_job.hpp"

namespace job {
void reduce_on(MPI_Comm comm) {
  int size = 0;
  int rank = 0;
  MPI_Comm_size(comm, &size);
  MPI_Comm_rank(comm, &rank);
  std::vector<float> values = values_of(rank, kCount);
  MPI_Allreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, comm);
  compare(values.data(), 0, kCount, size);
  JOB_CHECK(same_everywhere(values, comm));
}

long resident_kib() {
  std::ifstream file("/proc/self/statm");
  long pages = 0;
  file >> pages >> pages;
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

namespace {

// Counts copies and deletions of the attribute that the job did not ask for.
int g_copies = 0;
int count_copy(MPI_Comm, int, void*, void*, void*, int* flag) {
  ++g_copies;
  *flag = 0;
  return MPI_SUCCESS;
}

}  // namespace

void communicators() {
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(&count_copy, MPI_COMM_NULL_DELETE_FN, &keyval, nullptr);
  MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, nullptr);
  reduce_on(MPI_COMM_WORLD);
  JOB_CHECK(g_copies == 0);

  long before = 0;
  constexpr int kRounds = 70;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, -g_rank, &half);
    reduce_on(half);
    MPI_Comm_dup(half, &copy);
    reduce_on(copy);
    MPI_Comm_free(&half);
    reduce_on(copy);
    MPI_Comm_free(&copy);
    if (round == 19) {
      before = resident_kib();
    }
  }
  const long grown = resident_kib() - before;
  JOB_CHECK(grown < 1024);  // a private communicator and its buffers take more than 20 KiB
  if (g_rank == 0) {
    std::printf("50 rounds more took %ld KiB\n", grown);
  }
  MPI_Comm left = MPI_COMM_NULL;  // never freed
  MPI_Comm_dup(MPI_COMM_WORLD, &left);
  reduce_on(left);
}

void intercommunicator() {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm both = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, g_rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - g_rank % 2, 7, &both);
  std::vector<float> mine(kCount, static_cast<float>(g_rank % 2 + 1));
  std::vector<float> theirs(kCount);
  MPI_Allreduce(mine.data(), theirs.data(), kCount, MPI_FLOAT, MPI_SUM, both);
  int remote = 0;
  MPI_Comm_remote_size(both, &remote);
  JOB_CHECK(theirs[5] == static_cast<float>((2 - g_rank % 2) * remote));
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
}

void threads() {
  int level = 0;
  MPI_Query_thread(&level);
  if (level == MPI_THREAD_MULTIPLE) {
    MPI_Comm comms[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    const auto work = [&](int which) {
      for (int i = 0; i < 20; ++i) {
        reduce_on(comms[which]);
        int one = 1;
        MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, comms[which]);
        JOB_CHECK(one == g_size);
        MPI_Comm fresh = MPI_COMM_NULL;
        MPI_Comm_dup(comms[which], &fresh);
        reduce_on(fresh);
        MPI_Comm_free(&fresh);
      }
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    MPI_Comm_free(&comms[0]);
    MPI_Comm_free(&comms[1]);
  }
  if (level >= MPI_THREAD_SERIALIZED) {
    reduce_on(MPI_COMM_WORLD);
    std::thread([] { reduce_on(MPI_COMM_WORLD); }).join();
  }
  reduce_on(MPI_COMM_WORLD);
  if (g_rank == 0) {
    std::printf("level %d\n", level);
  }
}

// Prints the library's own codes, to compare runs with and without the preload.
void errors() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::vector<float> values(kCount, 1.0F);
  std::vector<float> result(kCount);
  const auto tell = [](const char* what, int code) {
    int error_class = 0;
    MPI_Error_class(code, &error_class);
    if (g_rank == 0) {
      std::printf("error of %s: class %d\n", what, error_class);
    }
  };
  for (int round = 0; round < 2; ++round) {  // before and after the ranks have agreed
#ifdef OPEN_MPI                              // Debian's MPICH looks at handles only
    tell("a negative count", MPI_Allreduce(values.data(), result.data(), -1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    tell("a negative block",
         MPI_Reduce_scatter_block(values.data(), result.data(), -1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
#endif
    tell("no type", MPI_Allreduce(values.data(), result.data(), kCount, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD));
    tell("no operation", MPI_Allreduce(values.data(), result.data(), kCount, MPI_FLOAT, MPI_OP_NULL, MPI_COMM_WORLD));
    tell("no communicator", MPI_Allreduce(values.data(), result.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_NULL));
    reduce_on(MPI_COMM_WORLD);
  }
}

void late_rank() {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  for (MPI_Comm comm : {MPI_COMM_WORLD, own}) {
    for (int call = 0; call < 2; ++call) {  // the ranks agree, and then compress
      if (g_rank == 1) {
        std::this_thread::sleep_for(std::chrono::seconds(2));
      }
      reduce_on(comm);
    }
  }
  MPI_Comm_free(&own);
}

// Makes calls on MPI_COMM_WORLD and on a duplicate, blocking and not: each gives a correct sum, whichever rank lacks
// some resource.
void short_of_something() {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  for (MPI_Comm comm : {MPI_COMM_WORLD, own}) {
    for (int i = 0; i < 3; ++i) {
      reduce_on(comm);
      std::vector<float> values = values_of(g_rank, kCount);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Iallreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, comm, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      compare(values.data(), 0, kCount, g_size);
    }
  }
  MPI_Comm_free(&own);
}

// Uses a communicator of an MPI session before MPI_Init, while it is the only one, and after it.
void early_session(void (*init)()) {
#if MPI_VERSION >= 4
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm_create_from_group(group, "gradwire", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  reduce_on(comm);
  init();
  reduce_on(comm);
  MPI_Group_free(&group);
  MPI_Comm_free(&comm);
  MPI_Session_finalize(&session);
#else
  init();
#endif
}

void early_exit() {
  reduce_on(MPI_COMM_WORLD);
  if (g_rank == 1) {
    _exit(3);
  }
  reduce_on(MPI_COMM_WORLD);
}

// With error feedback the sum over the steps is correct for any codec.
void train(const std::vector<std::size_t>& counts, bool fresh_buffers) {
  constexpr int kSteps = 160;
  constexpr int kWarm = 40;
  std::vector<std::vector<double>> total;
  std::vector<std::vector<float>> gradients;
  for (const std::size_t count : counts) {
    total.emplace_back(count);
    gradients.emplace_back(count);
  }
  double worst = 0;
  double square = 0;
  std::vector<std::vector<float>> blocks;
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t layer = 0; layer < counts.size(); ++layer) {
      std::vector<float>& gradient = gradients[layer];
      if (fresh_buffers) {
        gradient = std::vector<float>(counts[layer]);
      }
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = value_of(g_rank, i + layer * 100000);
      }
      MPI_Allreduce(MPI_IN_PLACE, gradient.data(), static_cast<int>(gradient.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
      for (std::size_t i = 0; step >= kWarm && i < gradient.size(); ++i) {
        total[layer][i] += gradient[i];
      }
      if (fresh_buffers) {
        if (blocks.size() > 4) {  // keeps some, so that addresses change
          blocks.erase(blocks.begin() + step % 4);
        }
        blocks.push_back(std::move(gradient));
      }
    }
    if (fresh_buffers) {  // otherwise nothing shows where a step ends
      float loss = 1;
      MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
  }
  std::size_t elements = 0;
  for (std::size_t layer = 0; layer < counts.size(); ++layer) {
    for (std::size_t i = 0; i < total[layer].size(); ++i) {
      const double error = total[layer][i] / (kSteps - kWarm) - sum_at(i + layer * 100000, g_size);
      worst = std::max(worst, std::fabs(error));
      square += error * error;
      ++elements;
    }
  }
  if (g_rank == 0) {
    std::printf("mean error %.6f worst %.6f\n", std::sqrt(square / static_cast<double>(elements)), worst);
  }
}

// Trains two layers of one size and a third one, in buffers that are new in each step and have addresses in another
// order.
void steps() { train({16384, 16384, 17000}, true); }

void equal_layers() { train({20000, 20000, 20000, 20000}, false); }

}  // namespace job
