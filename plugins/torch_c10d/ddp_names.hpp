// Gives the policy the names of a model's parameters, by a communication hook of the model.
#pragma once

#include <pybind11/pybind11.h>

namespace gradwire::torch_c10d {

/// `model` is a DistributedDataParallel over a group of this backend.
void name_buckets(const pybind11::object& model);

}  // namespace gradwire::torch_c10d
