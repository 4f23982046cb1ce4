// The Python class gradwire_torch.Hook: a communication hook for DistributedDataParallel over any process group.
#pragma once

#include <pybind11/pybind11.h>

namespace gradwire::torch_c10d {

void add_hook_class(pybind11::module_& module);

/// To be called before the process ends: ends backward passes that are under way, and joins the hooks' threads.
void close_hooks();

}  // namespace gradwire::torch_c10d
