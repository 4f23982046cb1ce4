// The product's device over CUDA and NCCL on a runtime without a GPU: what it calls is counted where the runtime and
// the library are called, and kernels where they are launched.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "exchange/stream/stream_device.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::test {

/// Makes the device of one rank of a communicator; the other ranks do not exist.
[[nodiscard]] std::shared_ptr<exchange::StreamDevice> make_counted_device(int rank, int world_size,
                                                                          const Policy::Device& share = {});

/// Gives the device windows of ranks that do not exist, for as long as it lives.
void give_windows(exchange::StreamDevice& device, int rank, int world_size);

/// Returns how often cudaEventRecord and cudaStreamWaitEvent were called in this process.
[[nodiscard]] std::uint64_t event_calls();

/// Returns the priorities of the streams that were made since the last call; the runtime has them from 0 to -5, the
/// highest.
[[nodiscard]] std::vector<int> take_stream_priorities();

}  // namespace gradwire::test
