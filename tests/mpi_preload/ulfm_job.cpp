// A job that handles the end of ranks itself (ULFM), as its authors would write it, without gradwire. Each rank prints
// what MPI reported to it, in the order of its calls; `values` are the bits of its sums over the shrunk communicator.
// Usage: ulfm_job SCENARIO; ulfm_job probe says whether this MPI goes on when a rank ends.
#ifdef REPLACED
#include <gradwire/replace/mpi.h>
#else
#include <mpi.h>
#endif
#include <malloc.h>
#include <mpi-ext.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kCount = 1 << 18;
constexpr int kDies = 2;  // the rank that ends, of 4

int g_rank = -1;
std::ostringstream g_told;

struct Thrown {
  int code;
};
void throwing(MPI_Comm*, int* code, ...) { throw Thrown{*code}; }  // NOLINT: MPI's signature

int class_of(int code) {
  int error_class = code;
  MPI_Error_class(code, &error_class);
  return error_class;
}

void tell(const std::string& what, int code) { g_told << " " << what << "=" << class_of(code); }

std::vector<float> gradient(int step) {
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + step * 13 + g_rank * 29) % 101) / 101.0F - 0.5F;
  }
  return values;
}

std::uint64_t hash_of(const std::vector<float>& values, std::uint64_t hash) {
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 1099511628211ULL;
  }
  return hash;
}

using Sum = std::function<int(std::vector<float>&, MPI_Comm)>;

int blocking(std::vector<float>& values, MPI_Comm comm) {
  return MPI_Allreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, comm);
}

int scattered(std::vector<float>& values, MPI_Comm comm) {
  int size = 1;
  MPI_Comm_size(comm, &size);
  std::vector<float> own(static_cast<std::size_t>(kCount / size));
  return MPI_Reduce_scatter_block(values.data(), own.data(), kCount / size, MPI_FLOAT, MPI_SUM, comm);
}

int nonblocking(std::vector<float>& values, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Iallreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, comm, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int persistent(std::vector<float>& values, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_Allreduce_init(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL, &request);
  code = code != MPI_SUCCESS ? code : MPI_Start(&request);
  code = code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (request != MPI_REQUEST_NULL) {
    MPI_Request_free(&request);
  }
  return code;
}

MPI_Comm duplicate(MPI_Errhandler handler) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, handler);
  return comm;
}

int step_of(int step, const Sum& sum, MPI_Comm comm) {
  std::vector<float> values = gradient(step);
  return sum(values, comm);
}

// Revokes, shrinks, and makes 20 steps.
void go_on(MPI_Comm comm) {
  MPI_Comm shrunk = MPI_COMM_NULL;
  int size = 0;
  tell("revoke", MPIX_Comm_revoke(comm));
  tell("after-revoke", step_of(0, &blocking, comm));
  tell("shrink", MPIX_Comm_shrink(comm, &shrunk));
  tell("after-shrink", step_of(0, &blocking, comm));
  tell("free", MPI_Comm_free(&comm));
  MPI_Comm_set_errhandler(shrunk, MPI_ERRORS_RETURN);
  MPI_Comm_size(shrunk, &size);
  g_told << " ranks=" << size;
  std::uint64_t hash = 14695981039346656037ULL;
  int failed = 0;
  for (int step = 1; step <= 20; ++step) {
    std::vector<float> values = gradient(step);
    failed += blocking(values, shrunk) != MPI_SUCCESS ? 1 : 0;
    hash = hash_of(values, hash);
  }
  g_told << " failed-steps=" << failed << " values=" << std::hex << hash << std::dec;
  MPIX_Comm_agree(shrunk, &size);  // so that the end of a rank does not disturb the others
}

void acknowledge(MPI_Comm comm) {
  MPI_Group failed = MPI_GROUP_NULL;
  int ended = 0;
  int flag = 1;
  tell("agree", MPIX_Comm_agree(comm, &flag));
  tell("ack", MPIX_Comm_failure_ack(comm));
  tell("acked", MPIX_Comm_failure_get_acked(comm, &failed));
  MPI_Group_size(failed, &ended);
  MPI_Group_free(&failed);
  g_told << " ended=" << ended;
  tell("after-ack", step_of(0, &blocking, comm));
  tell("agree", MPIX_Comm_agree(comm, &flag));  // no rank revokes before all are here
}

// One rank ends while the others are in their `fatal_step`th sum.
void death(const Sum& sum, int fatal_step) {
  MPI_Comm comm = duplicate(MPI_ERRORS_RETURN);
  for (int step = 1; step <= fatal_step; ++step) {
    if (step == fatal_step && g_rank == kDies) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ::kill(::getpid(), SIGKILL);
    }
    tell("step" + std::to_string(step), step_of(step, sum, comm));
  }
  tell("again", step_of(fatal_step, sum, comm));
  acknowledge(comm);
  go_on(comm);
}

// One rank ends at a random time inside its sum; the sums that other ranks get differ from run to run.
void death_inside(const Sum& sum, int microseconds) {
  MPI_Comm comm = duplicate(MPI_ERRORS_RETURN);
  tell("step1", step_of(1, sum, comm));
  std::thread end;
  if (g_rank == kDies) {
    end = std::thread([=] {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      ::kill(::getpid(), SIGKILL);
    });
  }
  int code = MPI_SUCCESS;
  for (int step = 2; code == MPI_SUCCESS; ++step) {
    code = step_of(step, sum, comm);
  }
  g_told << (class_of(code) == MPIX_ERR_PROC_FAILED || class_of(code) == MPIX_ERR_REVOKED ? " known" : " UNKNOWN");
  go_on(comm);
}

// No rank ends: rank 0 revokes while the others are in a sum that it does not make.
void revoked(const Sum& sum) {
  MPI_Comm comm = duplicate(MPI_ERRORS_RETURN);
  tell("step1", step_of(1, sum, comm));
  if (g_rank == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    tell("revoke", MPIX_Comm_revoke(comm));
  }
  tell("step2", step_of(2, sum, comm));
  go_on(comm);
}

// A handler that does not return is called once for each call that failed.
void thrown(const Sum& sum, int fatal_step) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(&throwing, &handler);
  MPI_Comm comm = duplicate(handler);
  for (int step = 1; step <= fatal_step + 1; ++step) {
    if (step == fatal_step && g_rank == kDies) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ::kill(::getpid(), SIGKILL);
    }
    try {
      tell("step" + std::to_string(step), step_of(step, sum, comm));
    } catch (const Thrown& error) {
      tell("thrown", error.code);
    }
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  acknowledge(comm);
  go_on(comm);
}

void fatal() {
  MPI_Comm comm = duplicate(MPI_ERRORS_ARE_FATAL);
  for (int step = 1;; ++step) {
    if (step == 3 && g_rank == kDies) {
      ::kill(::getpid(), SIGKILL);
    }
    step_of(step, &blocking, comm);
  }
}

// A communicator is shrunk without losing a rank: both communicators can still be used.
void shrunk_whole() {
  MPI_Comm comm = duplicate(MPI_ERRORS_RETURN);
  MPI_Comm shrunk = MPI_COMM_NULL;
  tell("step1", step_of(1, &blocking, comm));
  tell("shrink", MPIX_Comm_shrink(comm, &shrunk));
  tell("of-old", step_of(2, &blocking, comm));
  tell("of-new", step_of(2, &blocking, shrunk));
  MPI_Comm_free(&shrunk);
  MPI_Comm_free(&comm);
}

// Prints the memory, in MiB, that shrinking a revoked communicator frees after steps of one large sum and one small.
void shrunk_memory() {
  MPI_Comm comm = duplicate(MPI_ERRORS_RETURN);
  MPI_Comm shrunk = MPI_COMM_NULL;
  std::vector<float> values(std::size_t{16} * kCount, 1.0F);
  for (int step = 1; step <= 24; ++step) {
    float loss = 1;
    MPI_Allreduce(MPI_IN_PLACE, values.data(), 16 * kCount, MPI_FLOAT, MPI_SUM, comm);
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_FLOAT, MPI_SUM, comm);
  }
  MPI_Barrier(comm);
  tell("revoke", MPIX_Comm_revoke(comm));
  const auto used = [] { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; };
  const auto before = used();
  tell("shrink", MPIX_Comm_shrink(comm, &shrunk));
  g_told << " given-back=" << (static_cast<std::int64_t>(before) - static_cast<std::int64_t>(used())) / (1 << 20);
  MPI_Comm_free(&shrunk);
  MPI_Comm_free(&comm);
}

void probe() {
  void* value = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &value, &found);
  const bool goes_on = found != 0 && *static_cast<int*>(value) != 0;
  std::printf("%s\n", goes_on ? "goes on" : "ends");
}

}  // namespace

int main(int argc, char** argv) {
  int granted = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  const std::string scenario = argc > 1 ? argv[1] : "";
  const int number = argc > 2 ? std::stoi(argv[2]) : 3;
  if (scenario == "probe") {
    probe();
    MPI_Finalize();
    return 0;
  }
  if (scenario == "blocking") {
    death(&blocking, number);
  } else if (scenario == "scattered") {
    death(&scattered, number);
  } else if (scenario == "nonblocking") {
    death(&nonblocking, number);
  } else if (scenario == "persistent") {
    death(&persistent, number);
  } else if (scenario == "inside") {
    death_inside(&blocking, number);
  } else if (scenario == "revoked") {
    revoked(&blocking);
  } else if (scenario == "revoked_nonblocking") {
    revoked(&nonblocking);
  } else if (scenario == "thrown") {
    thrown(&blocking, number);
  } else if (scenario == "whole") {
    shrunk_whole();
  } else if (scenario == "shrunk_memory") {
    shrunk_memory();
  } else {
    fatal();
  }
  std::printf("rank %d:%s\n", g_rank, g_told.str().c_str());
  std::fflush(stdout);
  if (scenario == "whole" || scenario == "shrunk_memory" || scenario.rfind("revoked", 0) == 0) {
    MPI_Finalize();
    return 0;
  }
  std::_Exit(0);  // MPI_Finalize of Open MPI 5.0.11 may wait for ever for a rank that has ended
}
