// Whether memory is a GPU's, asked of the CUDA driver where the process has loaded one; gradwire::gradwire is not
// linked with it.
#pragma once

#include <string>

namespace gradwire::memory {

/// Memory that the CPU must not touch; managed memory is not. False without CUDA in the process.
[[nodiscard]] bool is_device_memory(const void* data) noexcept;
/// Error(invalid_argument) for device memory; `what` names it.
void require_host_memory(const void* data, const std::string& what);

}  // namespace gradwire::memory
