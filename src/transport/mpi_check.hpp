// MPI's return codes as exceptions.
#pragma once

#include <mpi.h>

#include <array>
#include <string>
#include <string_view>

#include "gradwire/error.hpp"

namespace gradwire::transport {

[[nodiscard]] inline std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  if (MPI_Error_string(code, text.data(), &size) != MPI_SUCCESS) {
    return "MPI error " + std::to_string(code);
  }
  return {text.data(), static_cast<std::size_t>(size)};
}

/// Throws Error(transport), which says what was tried, unless `code` is success. MPI does not say whose fault a failure
/// is; its arguments are right here, so the world is taken for its cause.
inline void check_mpi(int code, std::string_view what) {
  if (code != MPI_SUCCESS) {
    throw Error(ErrorCode::transport, std::string(what) + ": " + mpi_error_text(code), ErrorCause::world);
  }
}

}  // namespace gradwire::transport
