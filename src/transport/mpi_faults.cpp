#include "transport/mpi_faults.hpp"

#include <numeric>

#ifdef OPEN_MPI

extern "C" {
int PMPIX_Comm_revoke(MPI_Comm comm) __attribute__((weak));
int PMPIX_Comm_is_revoked(MPI_Comm comm, int* flag) __attribute__((weak));
int PMPIX_Comm_get_failed(MPI_Comm comm, MPI_Group* failed) __attribute__((weak));
int PMPIX_Comm_failure_ack(MPI_Comm comm) __attribute__((weak));
}

namespace gradwire::transport {
namespace {

constexpr int kFaultTolerance = 12;  // the attribute MPI_FT of Open MPI 5

bool ask() noexcept {
  void* value = nullptr;
  int found = 0;
  return PMPIX_Comm_revoke != nullptr && PMPIX_Comm_is_revoked != nullptr && PMPIX_Comm_get_failed != nullptr &&
         MPI_Comm_get_attr(MPI_COMM_WORLD, kFaultTolerance, &value, &found) == MPI_SUCCESS && found != 0 &&
         *static_cast<int*>(value) != 0;
}

}  // namespace

bool tolerates_faults() noexcept {
  static const bool tolerates = ask();
  return tolerates;
}

bool is_revoked(MPI_Comm comm) noexcept {
  int flag = 0;
  return tolerates_faults() && comm != MPI_COMM_NULL && PMPIX_Comm_is_revoked(comm, &flag) == MPI_SUCCESS && flag != 0;
}

bool is_faulty(MPI_Comm comm) noexcept {
  if (!tolerates_faults() || comm == MPI_COMM_NULL) {
    return false;
  }
  if (is_revoked(comm)) {
    return true;
  }
  MPI_Group failed = MPI_GROUP_NULL;
  int ended = 0;
  if (PMPIX_Comm_get_failed(comm, &failed) == MPI_SUCCESS) {
    MPI_Group_size(failed, &ended);
    MPI_Group_free(&failed);
  }
  return ended > 0;
}

std::vector<int> acknowledge_ended(MPI_Comm comm) {
  MPI_Group failed = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  std::vector<int> ranks;
  if (!tolerates_faults() || PMPIX_Comm_get_failed(comm, &failed) != MPI_SUCCESS) {
    return ranks;
  }
  int size = 0;
  MPI_Group_size(failed, &size);
  std::vector<int> places(static_cast<std::size_t>(size));
  std::iota(places.begin(), places.end(), 0);
  ranks.resize(places.size());
  MPI_Comm_group(comm, &all);
  MPI_Group_translate_ranks(failed, size, places.data(), all, ranks.data());
  MPI_Group_free(&all);
  MPI_Group_free(&failed);
  if (PMPIX_Comm_failure_ack != nullptr) {
    PMPIX_Comm_failure_ack(comm);
  }
  return ranks;
}

void revoke(MPI_Comm comm) noexcept {
  if (tolerates_faults() && comm != MPI_COMM_NULL) {
    PMPIX_Comm_revoke(comm);
  }
}

}  // namespace gradwire::transport

#else

namespace gradwire::transport {

bool tolerates_faults() noexcept { return false; }
bool is_revoked(MPI_Comm) noexcept { return false; }
bool is_faulty(MPI_Comm) noexcept { return false; }
std::vector<int> acknowledge_ended(MPI_Comm) { return {}; }
void revoke(MPI_Comm) noexcept {}

}  // namespace gradwire::transport
#endif
