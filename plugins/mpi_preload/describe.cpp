#include "plugins/mpi_preload/describe.hpp"

#include <array>

#include "transport/mpi_communicators.hpp"

namespace gradwire::mpi_preload {

std::optional<DType> dtype_of(MPI_Datatype type) noexcept {
  if (type == MPI_DATATYPE_NULL) {  // also equals types that the library was built without
    return std::nullopt;
  }
  if (type == MPI_FLOAT) {
    return DType::f32;
  }
  if (type == MPI_DOUBLE) {
    return DType::f64;
  }
  if (type == MPI_REAL || type == MPI_REAL4 || type == MPI_DOUBLE_PRECISION || type == MPI_REAL8) {
    int bytes = 0;  // depends on options of the Fortran compiler, such as -fdefault-real-8
    PMPI_Type_size(type, &bytes);
    return bytes == 4 ? std::optional(DType::f32) : bytes == 8 ? std::optional(DType::f64) : std::nullopt;
  }
#ifdef MPIX_C_FLOAT16
  if (type == MPIX_C_FLOAT16) {
    return DType::f16;
  }
#endif
  return std::nullopt;
}

std::optional<Reduction> reduction_of(MPI_Op op) noexcept {
  return op == MPI_SUM ? std::optional(Reduction::sum) : std::nullopt;
}

std::string_view name_of_op(MPI_Op op) noexcept {
  return op == MPI_SUM ? "sum" : op == MPI_MAX ? "max" : op == MPI_MIN ? "min" : op == MPI_PROD ? "prod" : "other";
}

bool is_private(MPI_Comm comm) noexcept {
  std::array<char, MPI_MAX_OBJECT_NAME> name{};
  int length = 0;
  return PMPI_Comm_get_name(comm, name.data(), &length) == MPI_SUCCESS &&
         std::string_view(name.data()) == transport::kPrivateName;
}

}  // namespace gradwire::mpi_preload
