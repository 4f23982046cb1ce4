// Gives objects beside a process group what they take from it: keys in its store, and the limit of their waits.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <optional>
#include <string>

#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

/// Returns keys in the group's store that no other object uses. `kind` is a name for all objects of a class; ranks make
/// those of a group in the same order. The call is collective if the group has no store, as one of the backend mpi.
[[nodiscard]] transport::Rendezvous store_of_group(const pybind11::object& group, int rank, int size,
                                                   const std::string& kind);

/// Returns the limit of any single wait: what is given, or 30 minutes, and at most GRADWIRE_TIMEOUT. `caller` begins
/// the message of the error for a limit that cannot be.
[[nodiscard]] std::chrono::milliseconds timeout_of(const std::optional<std::chrono::duration<double>>& given,
                                                   const std::string& caller);

}  // namespace gradwire::torch_c10d
