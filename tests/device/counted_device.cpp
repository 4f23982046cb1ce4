#include "tests/device/counted_device.hpp"

#include "exchange/stream/stream_nccl.hpp"

namespace gradwire::test {

std::shared_ptr<exchange::StreamDevice> make_counted_device(int rank, int world_size, const Policy::Device& share) {
  ncclComm_t comm = nullptr;
  transport::nccl_check(ncclCommInitRank(&comm, world_size, {}, rank), comm, "making a communicator");
  return exchange::make_nccl_device(comm, nullptr,
                                    {.most_blocks = share.blocks.value_or(0), .high_priority = share.high_priority});
}

}  // namespace gradwire::test
