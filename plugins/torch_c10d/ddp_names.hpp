// Gives the policy of a process group the names of a model's parameters: a Hook with that policy.
#pragma once

#include <pybind11/pybind11.h>

namespace gradwire::torch_c10d {

/// `model` is a DistributedDataParallel over a group of this backend. Where the group may compress nothing, or the
/// model is not on the CPU, this function changes nothing. Every rank calls it.
void name_buckets(const pybind11::object& model);

}  // namespace gradwire::torch_c10d
