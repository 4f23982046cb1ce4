#include "plugins/torch_c10d/nccl_join.hpp"

#include <nccl.h>

#include <cstring>

#include "base/units.hpp"
#include "exchange/stream/stream_cuda_device.hpp"

namespace gradwire::torch_c10d {

using transport::nccl_check;

void check_cuda_device(int device, const std::string& caller) {
  const int devices = exchange::cuda_devices();  // its error names a missing driver
  if (device < 0 || device >= devices) {
    throw Error(ErrorCode::invalid_argument, caller + ": there is no CUDA device " + std::to_string(device) +
                                                 "; there are " + std::to_string(devices));
  }
}

std::unique_ptr<transport::NcclMessages> join_by_nccl(const transport::Rendezvous& store, const ConnectOptions& options,
                                                      const std::string& caller, const std::string& first) {
  if (options.rank == 0) {
    ncclUniqueId id;
    nccl_check(ncclGetUniqueId(&id), nullptr, caller + ": ncclGetUniqueId");
    store.put("nccl", std::string(id.internal, sizeof(id.internal)));
  }
  store.put("here/" + std::to_string(options.rank), "1");
  for (int rank = 0; rank < options.world_size; ++rank) {
    try {
      static_cast<void>(get_while(store, "here/" + std::to_string(rank), options.timeout, options.go_on));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(ErrorCode::timeout,
                  caller + ": rank " + std::to_string(rank) + " has not come to its " + first + " within " +
                      format_duration(options.timeout) + " (" + error.what() + ")",
                  ErrorCause::world);
    }
  }
  const std::string text = get_while(store, "nccl", options.timeout, options.go_on);
  ncclUniqueId id{};
  if (text.size() != sizeof(id.internal)) {
    throw Error(ErrorCode::mismatch, caller + ": the group's store holds " + std::to_string(text.size()) +
                                         " bytes as NCCL's id; use one version of gradwire on all ranks");
  }
  std::memcpy(id.internal, text.data(), text.size());
  ncclComm_t comm = nullptr;
  nccl_check(ncclCommInitRank(&comm, options.world_size, id, options.rank), nullptr, caller + ": ncclCommInitRank");
  return transport::NcclMessages::adopt(comm);
}

}  // namespace gradwire::torch_c10d
