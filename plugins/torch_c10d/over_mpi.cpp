#include "plugins/torch_c10d/over_mpi.hpp"

#ifdef GRADWIRE_TORCH_MPI
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_transport.hpp"

namespace gradwire::torch_c10d {
namespace {

using transport::check_mpi;

// Threads of several groups may call this at once.
void initialise() {
  static Mutex mutex;
  const MutexLock lock(mutex);
  int initialised = 0;
  check_mpi(MPI_Initialized(&initialised), "MPI_Initialized");
  int level = 0;
  if (initialised == 0) {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    static const Home home;  // a forked child runs the exit handler, too
    std::atexit([] {
      if (home.is_elsewhere()) {
        return;
      }
      int finalised = 0;
      MPI_Finalized(&finalised);
      if (finalised == 0) {
        MPI_Finalize();
      }
    });
  }
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_MULTIPLE) {
    throw Error(ErrorCode::unsupported,
                "GRADWIRE_TORCH_TRANSPORT=mpi: MPI was initialised below MPI_THREAD_MULTIPLE, and the backend calls it "
                "on threads of its own; initialise it with that, or leave it to the backend");
  }
}

// Only this tag distinguishes communicators that threads of several groups make at the same time. The group's first
// rank chooses it: different among the groups that this process leads, and among processes.
int new_tag(int world_rank, int launched) {
  static std::atomic<std::uint64_t> made = 0;
  void* limit = nullptr;
  int known = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &known), "MPI_Comm_get_attr");
  const auto tags = static_cast<std::uint64_t>(known != 0 ? *static_cast<int*>(limit) : 32767);
  return static_cast<int>((made++ * static_cast<std::uint64_t>(launched) + static_cast<std::uint64_t>(world_rank)) %
                          tags);
}

}  // namespace

std::shared_ptr<Transport> connect_over_mpi(const transport::Rendezvous& store, int rank, int world_size,
                                            std::chrono::milliseconds timeout) {
  initialise();
  int world_rank = 0;
  int launched = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &launched), "MPI_Comm_size");
  if (launched < world_size) {
    throw Error(ErrorCode::unsupported, "GRADWIRE_TORCH_TRANSPORT=mpi: the process group has " +
                                            std::to_string(world_size) + " ranks, but MPI_COMM_WORLD has " +
                                            std::to_string(launched) +
                                            "; start the job with mpirun, or leave the variable out");
  }
  const auto key = [](int of) { return "mpi/" + std::to_string(of); };
  if (rank == 0) {
    store.put("mpi/tag", std::to_string(new_tag(world_rank, launched)));
  }
  store.put(key(rank), std::to_string(world_rank));
  std::vector<int> members;
  for (int other = 0; other < world_size; ++other) {
    members.push_back(std::stoi(store.get(key(other), timeout)));
  }
  const int tag = std::stoi(store.get("mpi/tag", timeout));
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, world_size, members.data(), &group), "MPI_Group_incl");
  const int made = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm);  // all members make this call
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  check_mpi(made, "MPI_Comm_create_group");
  auto transport = transport::make_mpi(comm, {.timeout = timeout});
  MPI_Comm_free(&comm);
  return transport;
}

}  // namespace gradwire::torch_c10d

#else

namespace gradwire::torch_c10d {

std::shared_ptr<Transport> connect_over_mpi(const transport::Rendezvous& /*store*/, int /*rank*/, int /*world_size*/,
                                            std::chrono::milliseconds /*timeout*/) {
  throw Error(ErrorCode::unsupported,
              "GRADWIRE_TORCH_TRANSPORT=mpi: gradwire_torch was built without MPI; leave the variable out, or build it "
              "where MPI is");
}

}  // namespace gradwire::torch_c10d
#endif
