// Tells whether memory is a GPU's by asking the CUDA driver, if the process has loaded one; gradwire::gradwire does not
// link it.
#pragma once

#include <string>

namespace gradwire::memory {

/// Whether the CPU must not touch this memory; it may touch managed memory. False without CUDA in the process.
[[nodiscard]] bool is_device_memory(const void* data) noexcept;
/// Throws Error(invalid_argument) for device memory; `what` names it.
void require_host_memory(const void* data, const std::string& what);

}  // namespace gradwire::memory
