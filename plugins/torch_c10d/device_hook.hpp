// Finds what reduces CUDA tensors, a shared object of its own beside the module: the module itself needs no CUDA.
#pragma once

#include <memory>
#include <string>

#include "plugins/torch_c10d/hook_engine.hpp"
#include "plugins/torch_c10d/scatter_engine.hpp"

namespace gradwire::torch_c10d {

/// Loads the shared object, and makes its engine. Throws Error(unsupported) if `device` ("cuda:0") is no CUDA device,
/// or if the shared object is not there or cannot be loaded, with the reason.
[[nodiscard]] std::unique_ptr<HookEngine> load_device_hook_engine(const HookOptions& options,
                                                                  const std::string& device);
/// Does the same for gradwire_torch.ReduceScatter.
[[nodiscard]] std::unique_ptr<ScatterEngine> load_device_scatter_engine(const ScatterOptions& options,
                                                                        const std::string& device);

}  // namespace gradwire::torch_c10d
