// How the names of a model's parameters reach the policy: as the model's communication hook.
#pragma once

#include <pybind11/pybind11.h>

namespace gradwire::torch_c10d {

/// `model`: a DistributedDataParallel over a group of this backend.
void name_buckets(const pybind11::object& model);

}  // namespace gradwire::torch_c10d
