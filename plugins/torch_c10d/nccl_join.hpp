// Uses NCCL to connect ranks on CUDA devices that know each other only by a process group's key-value store.
#pragma once

#include <memory>
#include <string>

#include "plugins/torch_c10d/connect.hpp"
#include "transport/nccl_messages.hpp"

namespace gradwire::torch_c10d {

/// Throws Error(unsupported) where there is no driver, Error(invalid_argument) where the device is not there. `caller`
/// begins the message, here and below.
void check_cuda_device(int device, const std::string& caller);

/// The call is collective; the rank's device is current. It waits for all ranks in the store before NCCL does, whose
/// wait has no end. `first` is what brings a rank here, such as "first backward pass". Error(timeout) names the rank
/// that did not come.
[[nodiscard]] std::unique_ptr<transport::NcclMessages> join_by_nccl(const transport::Rendezvous& store,
                                                                    const ConnectOptions& options,
                                                                    const std::string& caller,
                                                                    const std::string& first);

}  // namespace gradwire::torch_c10d
