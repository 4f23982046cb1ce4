// The Python class gradwire_torch.ReduceScatter: FSDP2's custom reduce-scatter, for gradients.
#pragma once

#include <pybind11/pybind11.h>

namespace gradwire::torch_c10d {

void add_scatter_class(pybind11::module_& module);

/// Closes what is left at the end of the process: a model that has such an object is often part of a cycle, which
/// Python does not free, and threads of its connections must not outlive the interpreter.
void close_scatters();

}  // namespace gradwire::torch_c10d
