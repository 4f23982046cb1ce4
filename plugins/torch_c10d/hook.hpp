// The Python class gradwire_torch.Hook: a communication hook for DistributedDataParallel over any process group.
#pragma once

#include <functional>

#include "plugins/torch_c10d/ddp_model.hpp"
#include "plugins/torch_c10d/hook_engine.hpp"

namespace gradwire::torch_c10d {

void add_hook_class(pybind11::module_& module);

/// Makes a Hook. `choose` returns its policy, its timeout, and who is told when a session has ended; an error that it
/// throws is told to the other ranks, too. Every rank calls it.
[[nodiscard]] pybind11::object make_hook(DdpModel model, const std::function<HookOptions()>& choose);

/// To be called before the process ends: ends backward passes that are under way, and joins the hooks' threads.
void close_hooks();

}  // namespace gradwire::torch_c10d
