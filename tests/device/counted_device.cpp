#include "tests/device/counted_device.hpp"

#include "exchange/stream/stream_nccl.hpp"

namespace gradwire::test {

std::shared_ptr<exchange::StreamDevice> make_counted_device(int rank, int world_size) {
  ncclComm_t comm = nullptr;
  transport::nccl_check(ncclCommInitRank(&comm, world_size, {}, rank), comm, "making a communicator");
  return exchange::make_nccl_device(comm, nullptr);
}

}  // namespace gradwire::test
