// Translates MPI's handles to gradwire's types.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "gradwire/dtype.hpp"
#include "gradwire/reduction.hpp"

namespace gradwire::mpi_preload {

/// The dtype; none for a type that is not predefined, or that codecs do not know.
[[nodiscard]] std::optional<DType> dtype_of(MPI_Datatype type) noexcept;
/// The reduction; none for operations other than the sum. MPI has no average.
[[nodiscard]] std::optional<Reduction> reduction_of(MPI_Op op) noexcept;
/// "sum", "max", ...; "other" for the user's own.
[[nodiscard]] std::string_view name_of_op(MPI_Op op) noexcept;

/// Whether gradwire itself made the communicator, for a session in the program. Local.
[[nodiscard]] bool is_private(MPI_Comm comm) noexcept;

/// Bytes of `count` elements, for counting; 0 where the arguments are wrong.
[[nodiscard]] inline std::uint64_t bytes_of(std::int64_t count, MPI_Datatype type) noexcept {
  int each = 0;
  if (type == MPI_FLOAT || type == MPI_INT) {
    each = 4;
  } else if (type == MPI_DOUBLE) {
    each = 8;
  } else if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &each) != MPI_SUCCESS) {
    return 0;
  }
  return count > 0 && each > 0 ? static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(each) : 0;
}

}  // namespace gradwire::mpi_preload
