// The same functions for jobs in Fortran. Open MPI's Fortran bindings call PMPI_ functions, which bypass definitions of
// the C names; MPICH's call the C names, and need nothing. mpif.h and `use mpi` call mpi_x_ (or another spelling, by
// the compiler's names), `use mpi_f08` calls ompi_x_f. A call that is passed on goes to the next definition of the same
// spelling with unchanged arguments, so that the library recognises its own sentinels.
#include <mpi.h>

#ifdef OPEN_MPI
#include <atomic>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "base/loaded_objects.hpp"
#include "plugins/mpi_preload/fortran_sentinels.hpp"
#include "plugins/mpi_preload/job_functions.hpp"
#include "plugins/mpi_preload/process.hpp"

namespace gradwire::mpi_preload {
namespace {

static_assert(std::is_same_v<MPI_Fint, int>, "an Open MPI whose INTEGER is not int: arrays of counts need a copy");

void give(MPI_Fint* error, int code) {
  if (error != nullptr) {  // optional in mpi_f08
    *error = code;
  }
}

// The next definition of one spelling: behind this library, or in any library of the process, since the job's Fortran
// bindings may be visible only to the module that was linked with them.
class NextFortran {
 public:
  constexpr explicit NextFortran(const char* name) noexcept : name_(name) {}

  /// Calls the function, and returns its code.
  template <typename... Arguments>
  int call(Arguments*... arguments) {
    MPI_Fint code = MPI_SUCCESS;
    reinterpret_cast<void (*)(Arguments * ..., MPI_Fint*)>(function())(arguments..., &code);
    return code;
  }

 private:
  void* function() {
    void* found = known_.load(std::memory_order_relaxed);
    if (found == nullptr) [[unlikely]] {
      found = find_next(name_);
      found = found == nullptr ? find_function_in_loaded_objects(name_) : found;
      if (found == nullptr) {
        say("this process called " + std::string(name_) + " and has no MPI that has it");
        std::abort();
      }
      known_.store(found, std::memory_order_relaxed);
    }
    return found;
  }

  const char* name_;
  std::atomic<void*> known_{nullptr};
};

// The arguments of every reduction besides its buffers, as handles of C.
struct Handles {
  Handles(const MPI_Fint* of_type, const MPI_Fint* of_op, const MPI_Fint* of_comm)
      : type(PMPI_Type_f2c(*of_type)), op(PMPI_Op_f2c(*of_op)), comm(PMPI_Comm_f2c(*of_comm)) {}
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;
};

auto buffers_of(void* send, void* receive) {
  return [=] { return Buffers{c_buffer(send), c_buffer(receive)}; };
}

// How `counts` is read: as one count, or as those of all segments.
struct AllReduce {
  template <typename Way, typename Find, typename Forward>
  static int make(const Way way, const Find& buffers, const MPI_Fint* count, const Handles& c, const Forward& forward) {
    return all_reduce(way, buffers, *count, c.type, c.op, c.comm, forward);
  }
};
struct ReduceScatter {
  template <typename Way, typename Find, typename Forward>
  static int make(const Way way, const Find& buffers, const MPI_Fint* counts, const Handles& c,
                  const Forward& forward) {
    return reduce_scatter(way, buffers, counts, c.type, c.op, c.comm, forward);
  }
};
struct ReduceScatterBlock {
  template <typename Way, typename Find, typename Forward>
  static int make(const Way way, const Find& buffers, const MPI_Fint* count, const Handles& c, const Forward& forward) {
    return reduce_scatter_block(way, buffers, *count, c.type, c.op, c.comm, forward);
  }
};

template <typename Reduction>
struct Sum {
  NextFortran& next;
  void operator()(void* send, void* receive, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
                  MPI_Fint* error) const {
    give(error, Reduction::make(Blocking{}, buffers_of(send, receive), counts, Handles(type, op, comm),
                                [=, this] { return next.call(send, receive, counts, type, op, comm); }));
  }
};

// Makes calls that return a request: `made` is set where gradwire makes the request; the library sets `request` itself.
template <typename Reduction>
struct RequestOf {
  NextFortran& next;
  void operator()(void* send, void* receive, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
                  MPI_Fint* request, MPI_Fint* error) const {
    MPI_Request made = MPI_REQUEST_NULL;
    const int code = Reduction::make(Requesting{&made}, buffers_of(send, receive), counts, Handles(type, op, comm),
                                     [=, this] { return next.call(send, receive, counts, type, op, comm, request); });
    if (code == MPI_SUCCESS && made != MPI_REQUEST_NULL) {
      *request = PMPI_Request_c2f(made);
    }
    give(error, code);
  }
};

struct RootedReduce {
  NextFortran& next;
  void operator()(void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* root,
                  MPI_Fint* comm, MPI_Fint* error) const {
    const Handles c(type, op, comm);
    give(error, reduce(buffers_of(send, receive), *count, c.type, c.op, *root, c.comm,
                       [=, this] { return next.call(send, receive, count, type, op, root, comm); }));
  }
};

// MPI_Comm_free and MPI_Comm_disconnect.
struct EndComm {
  NextFortran& next;
  void operator()(MPI_Fint* comm, MPI_Fint* error) const {
    drain_requests(PMPI_Comm_f2c(*comm));
    give(error, next.call(comm));
  }
};

struct Init {
  NextFortran& next;
  void operator()(MPI_Fint* error) const {
    int granted = MPI_THREAD_SINGLE;
    before_init();
    const int code = process().configuration.raise_threads
                         ? GRADWIRE_NEXT(MPI_Init_thread)(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted)
                         : next.call();
    begin();
    give(error, code);
  }
};

struct InitThread {
  NextFortran& next;
  void operator()(const MPI_Fint* required, MPI_Fint* granted, MPI_Fint* error) const {
    MPI_Fint level = process().configuration.raise_threads ? MPI_THREAD_MULTIPLE : *required;
    before_init();
    const int code = next.call(&level, granted);
    begin();
    give(error, code);
  }
};

struct Finalize {
  NextFortran& next;
  void operator()(MPI_Fint* error) const {
    if (!in_child()) {
      finish();
    }
    give(error, next.call());
  }
};

}  // namespace
}  // namespace gradwire::mpi_preload

using namespace gradwire::mpi_preload;  // NOLINT(google-build-using-namespace): nothing but calls of it follows

// NOLINTBEGIN(bugprone-macro-parentheses,readability-non-const-parameter): names; the signatures are MPI's
#define GRADWIRE_SPELLING(name, body, parameters, arguments) \
  GRADWIRE_EXPORT void name parameters {                     \
    static constinit NextFortran next(#name);                \
    body{next} arguments;                                    \
  }
// The function that `use mpi_f08` calls, and the same under the spellings of compilers.
#define GRADWIRE_FORTRAN(lower, upper, body, parameters, arguments) \
  GRADWIRE_SPELLING(ompi_##lower##_f, body, parameters, arguments)  \
  GRADWIRE_SPELLING(mpi_##lower, body, parameters, arguments)       \
  GRADWIRE_SPELLING(mpi_##lower##_, body, parameters, arguments)    \
  GRADWIRE_SPELLING(mpi_##lower##__, body, parameters, arguments)   \
  GRADWIRE_SPELLING(MPI_##upper, body, parameters, arguments)

#define GRADWIRE_SUM_PARAMETERS \
  (void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, MPI_Fint* error)
#define GRADWIRE_SUM_ARGUMENTS (send, receive, count, type, op, comm, error)
#define GRADWIRE_REQUEST_PARAMETERS                                                                             \
  (void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm, MPI_Fint* request, \
   MPI_Fint* error)
#define GRADWIRE_REQUEST_ARGUMENTS (send, receive, count, type, op, comm, request, error)

GRADWIRE_FORTRAN(allreduce, ALLREDUCE, Sum<AllReduce>, GRADWIRE_SUM_PARAMETERS, GRADWIRE_SUM_ARGUMENTS)
GRADWIRE_FORTRAN(reduce, REDUCE, RootedReduce,
                 (void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* root,
                  MPI_Fint* comm, MPI_Fint* error),
                 (send, receive, count, type, op, root, comm, error))
GRADWIRE_FORTRAN(reduce_scatter, REDUCE_SCATTER, Sum<ReduceScatter>, GRADWIRE_SUM_PARAMETERS, GRADWIRE_SUM_ARGUMENTS)
GRADWIRE_FORTRAN(reduce_scatter_block, REDUCE_SCATTER_BLOCK, Sum<ReduceScatterBlock>, GRADWIRE_SUM_PARAMETERS,
                 GRADWIRE_SUM_ARGUMENTS)
GRADWIRE_FORTRAN(iallreduce, IALLREDUCE, RequestOf<AllReduce>, GRADWIRE_REQUEST_PARAMETERS, GRADWIRE_REQUEST_ARGUMENTS)
GRADWIRE_FORTRAN(ireduce_scatter, IREDUCE_SCATTER, RequestOf<ReduceScatter>, GRADWIRE_REQUEST_PARAMETERS,
                 GRADWIRE_REQUEST_ARGUMENTS)
GRADWIRE_FORTRAN(ireduce_scatter_block, IREDUCE_SCATTER_BLOCK, RequestOf<ReduceScatterBlock>,
                 GRADWIRE_REQUEST_PARAMETERS, GRADWIRE_REQUEST_ARGUMENTS)
GRADWIRE_FORTRAN(comm_free, COMM_FREE, EndComm, (MPI_Fint * comm, MPI_Fint* error), (comm, error))
GRADWIRE_FORTRAN(comm_disconnect, COMM_DISCONNECT, EndComm, (MPI_Fint * comm, MPI_Fint* error), (comm, error))
GRADWIRE_FORTRAN(init, INIT, Init, (MPI_Fint * error), (error))
GRADWIRE_FORTRAN(init_thread, INIT_THREAD, InitThread, (MPI_Fint * required, MPI_Fint* granted, MPI_Fint* error),
                 (required, granted, error))
GRADWIRE_FORTRAN(finalize, FINALIZE, Finalize, (MPI_Fint * error), (error))
// NOLINTEND(bugprone-macro-parentheses,readability-non-const-parameter)
#endif
