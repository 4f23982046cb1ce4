// Finds the part of the hook that reduces CUDA tensors, a shared object of its own beside the module: the module itself
// needs no CUDA.
#pragma once

#include <memory>
#include <string>

#include "plugins/torch_c10d/hook_engine.hpp"

namespace gradwire::torch_c10d {

/// Loads the shared object, and makes its engine. Error(unsupported) if `device` ("cuda:0") is no CUDA device, or if
/// the shared object is not there or cannot be loaded, with the reason.
[[nodiscard]] std::unique_ptr<HookEngine> load_device_hook_engine(const HookOptions& options,
                                                                  const std::string& device);

}  // namespace gradwire::torch_c10d
