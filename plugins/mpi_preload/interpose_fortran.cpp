// The same functions for jobs in Fortran. Open MPI's Fortran bindings call PMPI_ functions, so that what stands in
// front of the C names is not asked; MPICH's call the C names, and need nothing. mpif.h and `use mpi` call mpi_x_ (or
// another spelling, as the compiler's names are), `use mpi_f08` calls ompi_x_f.
#include <mpi.h>

#ifdef OPEN_MPI
#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "plugins/mpi_preload/interposed.hpp"
#include "plugins/mpi_preload/process.hpp"

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the library's names
// Where Fortran's MPI_IN_PLACE and MPI_BOTTOM are, by the compiler's spelling. The library has them; not called.
extern int mpi_fortran_in_place_ __attribute__((weak));
extern int mpi_fortran_in_place__ __attribute__((weak));
extern int mpi_fortran_in_place __attribute__((weak));
extern int MPI_FORTRAN_IN_PLACE __attribute__((weak));
extern int mpi_fortran_bottom_ __attribute__((weak));
extern int mpi_fortran_bottom__ __attribute__((weak));
extern int mpi_fortran_bottom __attribute__((weak));
extern int MPI_FORTRAN_BOTTOM __attribute__((weak));
// NOLINTEND(bugprone-reserved-identifier)
}

namespace gradwire::mpi_preload {
namespace {

static_assert(std::is_same_v<MPI_Fint, int>, "an Open MPI whose INTEGER is not int: arrays of counts need a copy");

bool is_one_of(const void* buffer, std::initializer_list<const int*> places) {
  return std::any_of(places.begin(), places.end(),
                     [&](const int* place) { return place != nullptr && buffer == place; });
}

void* c_buffer(void* buffer) {
  if (is_one_of(buffer,
                {&mpi_fortran_in_place_, &mpi_fortran_in_place__, &mpi_fortran_in_place, &MPI_FORTRAN_IN_PLACE})) {
    return MPI_IN_PLACE;
  }
  return is_one_of(buffer, {&mpi_fortran_bottom_, &mpi_fortran_bottom__, &mpi_fortran_bottom, &MPI_FORTRAN_BOTTOM})
             ? MPI_BOTTOM
             : buffer;
}

void give(MPI_Fint* error, int code) {
  if (error != nullptr) {  // optional in mpi_f08
    *error = code;
  }
}

// What every reduction has: handles and sentinels of C.
struct Arguments {
  Arguments(void* send_buffer, void* receive_buffer, const MPI_Fint* of_type, const MPI_Fint* of_op,
            const MPI_Fint* of_comm)
      : send(c_buffer(send_buffer)),
        receive(c_buffer(receive_buffer)),
        type(PMPI_Type_f2c(*of_type)),
        op(PMPI_Op_f2c(*of_op)),
        comm(PMPI_Comm_f2c(*of_comm)) {}
  void* send;
  void* receive;
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;
};

template <typename Call>
void with_request(MPI_Fint* request, MPI_Fint* error, const Call& call) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = call(&made);
  if (code == MPI_SUCCESS) {
    *request = PMPI_Request_c2f(made);
  }
  give(error, code);
}

template <typename Call>
void with_comm(MPI_Fint* comm, MPI_Fint* error, const Call& call) {
  MPI_Comm given = PMPI_Comm_f2c(*comm);
  const int code = call(&given);
  if (code == MPI_SUCCESS) {
    *comm = PMPI_Comm_c2f(given);
  }
  give(error, code);
}

}  // namespace
}  // namespace gradwire::mpi_preload

using namespace gradwire::mpi_preload;  // NOLINT(google-build-using-namespace): nothing but calls of it follows

// What `use mpi_f08` calls, and the same under the spellings of compilers.
// NOLINTBEGIN(bugprone-macro-parentheses,readability-non-const-parameter): names; the signatures are MPI's
#define GRADWIRE_FORTRAN(lower, upper)       \
  GRADWIRE_SPELLING(mpi_##lower, lower);     \
  GRADWIRE_SPELLING(mpi_##lower##_, lower);  \
  GRADWIRE_SPELLING(mpi_##lower##__, lower); \
  GRADWIRE_SPELLING(MPI_##upper, lower)
#define GRADWIRE_SPELLING(name, lower) \
  __typeof__(ompi_##lower##_f) name __attribute__((alias("ompi_" #lower "_f"), visibility("default")))

GRADWIRE_EXPORT void ompi_allreduce_f(void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                                      MPI_Fint* comm, MPI_Fint* error) {
  const Arguments given(send, receive, type, op, comm);
  give(error, MPI_Allreduce(given.send, given.receive, *count, given.type, given.op, given.comm));
}

GRADWIRE_EXPORT void ompi_reduce_f(void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                                   MPI_Fint* root, MPI_Fint* comm, MPI_Fint* error) {
  const Arguments given(send, receive, type, op, comm);
  give(error, MPI_Reduce(given.send, given.receive, *count, given.type, given.op, *root, given.comm));
}

GRADWIRE_EXPORT void ompi_reduce_scatter_f(void* send, void* receive, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op,
                                           MPI_Fint* comm, MPI_Fint* error) {
  const Arguments given(send, receive, type, op, comm);
  give(error, MPI_Reduce_scatter(given.send, given.receive, counts, given.type, given.op, given.comm));
}

GRADWIRE_EXPORT void ompi_reduce_scatter_block_f(void* send, void* receive, MPI_Fint* count, MPI_Fint* type,
                                                 MPI_Fint* op, MPI_Fint* comm, MPI_Fint* error) {
  const Arguments given(send, receive, type, op, comm);
  give(error, MPI_Reduce_scatter_block(given.send, given.receive, *count, given.type, given.op, given.comm));
}

GRADWIRE_EXPORT void ompi_iallreduce_f(void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                                       MPI_Fint* comm, MPI_Fint* request, MPI_Fint* error) {
  const Arguments given(send, receive, type, op, comm);
  with_request(request, error, [&](MPI_Request* made) {
    return MPI_Iallreduce(given.send, given.receive, *count, given.type, given.op, given.comm, made);
  });
}

GRADWIRE_EXPORT void ompi_ireduce_scatter_f(void* send, void* receive, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op,
                                            MPI_Fint* comm, MPI_Fint* request, MPI_Fint* error) {
  const Arguments given(send, receive, type, op, comm);
  with_request(request, error, [&](MPI_Request* made) {
    return MPI_Ireduce_scatter(given.send, given.receive, counts, given.type, given.op, given.comm, made);
  });
}

GRADWIRE_EXPORT void ompi_ireduce_scatter_block_f(void* send, void* receive, MPI_Fint* count, MPI_Fint* type,
                                                  MPI_Fint* op, MPI_Fint* comm, MPI_Fint* request, MPI_Fint* error) {
  const Arguments given(send, receive, type, op, comm);
  with_request(request, error, [&](MPI_Request* made) {
    return MPI_Ireduce_scatter_block(given.send, given.receive, *count, given.type, given.op, given.comm, made);
  });
}

GRADWIRE_EXPORT void ompi_comm_free_f(MPI_Fint* comm, MPI_Fint* error) { with_comm(comm, error, &MPI_Comm_free); }

GRADWIRE_EXPORT void ompi_comm_disconnect_f(MPI_Fint* comm, MPI_Fint* error) {
  with_comm(comm, error, &MPI_Comm_disconnect);
}

GRADWIRE_EXPORT void ompi_init_f(MPI_Fint* error) { give(error, MPI_Init(nullptr, nullptr)); }

GRADWIRE_EXPORT void ompi_init_thread_f(MPI_Fint* required, MPI_Fint* granted, MPI_Fint* error) {
  give(error, MPI_Init_thread(nullptr, nullptr, *required, granted));
}

GRADWIRE_EXPORT void ompi_finalize_f(MPI_Fint* error) { give(error, MPI_Finalize()); }

extern "C" {
GRADWIRE_FORTRAN(allreduce, ALLREDUCE);
GRADWIRE_FORTRAN(reduce, REDUCE);
GRADWIRE_FORTRAN(reduce_scatter, REDUCE_SCATTER);
GRADWIRE_FORTRAN(reduce_scatter_block, REDUCE_SCATTER_BLOCK);
GRADWIRE_FORTRAN(iallreduce, IALLREDUCE);
GRADWIRE_FORTRAN(ireduce_scatter, IREDUCE_SCATTER);
GRADWIRE_FORTRAN(ireduce_scatter_block, IREDUCE_SCATTER_BLOCK);
GRADWIRE_FORTRAN(comm_free, COMM_FREE);
GRADWIRE_FORTRAN(comm_disconnect, COMM_DISCONNECT);
GRADWIRE_FORTRAN(init, INIT);
GRADWIRE_FORTRAN(init_thread, INIT_THREAD);
GRADWIRE_FORTRAN(finalize, FINALIZE);
}
// NOLINTEND(bugprone-macro-parentheses,readability-non-const-parameter)
#endif
