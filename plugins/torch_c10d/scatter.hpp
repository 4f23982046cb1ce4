// The Python class gradwire_torch.ReduceScatter: FSDP2's custom reduce-scatter, for gradients.
#pragma once

#include <pybind11/pybind11.h>

namespace gradwire::torch_c10d {

void add_scatter_class(pybind11::module_& module);

}  // namespace gradwire::torch_c10d
