// gradwire/mpi.h.
#include "gradwire/mpi.h"

#include "api/c_api.hpp"
#include "gradwire/mpi.hpp"

using gradwire::api::guard;
using gradwire::api::required;

namespace {

gradwire::Nonfinite nonfinite_of(gradwire_nonfinite nonfinite, const char* function) {
  switch (nonfinite) {
    case GRADWIRE_NONFINITE_DEFAULT: return gradwire::Nonfinite::automatic;
    case GRADWIRE_PROPAGATE: return gradwire::Nonfinite::propagate;
    case GRADWIRE_SKIP: return gradwire::Nonfinite::skip;
  }
  gradwire::api::refuse(function, "nonfinite", nonfinite, "GRADWIRE_PROPAGATE or GRADWIRE_SKIP");
}

gradwire::SessionOptions session_options(const gradwire_session_options* given, const char* function) {
  const gradwire_session_options known = gradwire::api::read_struct(given, "gradwire_session_options");
  gradwire::SessionOptions options;
  options.reduction = gradwire::api::reduction_of(known.reduction, gradwire::Reduction::mean, function);
  options.timeout = gradwire::api::timeout_of(known.timeout_ms, function);
  options.checksum = gradwire::api::switch_of(known.checksum, function, "checksum");
  options.nonfinite = nonfinite_of(known.nonfinite, function);
  options.compare_ranks_every = known.compare_ranks_every;
  return options;
}

}  // namespace

extern "C" {

gradwire_status gradwire_session_create_mpi(MPI_Comm comm, const gradwire_policy* policy,
                                            const gradwire_session_options* options, gradwire_session** session) {
  const char* function = __func__;
  return guard([&] {
    gradwire_session*& result = required(session, function, "session");
    result = nullptr;
    result = new gradwire_session{gradwire::mpi::make_session(
        comm, policy == nullptr ? gradwire::Policy() : policy->policy, session_options(options, function))};
  });
}

gradwire_status gradwire_communicator_create_mpi(MPI_Comm comm, const gradwire_communicator_options* options,
                                                 gradwire_communicator** communicator) {
  const char* function = __func__;
  return guard([&] {
    gradwire_communicator*& result = required(communicator, function, "communicator");
    result = nullptr;
    const gradwire_communicator_options known = gradwire::api::read_struct(options, "gradwire_communicator_options");
    gradwire::CommunicatorOptions wanted{.timeout = gradwire::api::timeout_of(known.timeout_ms, function),
                                         .checksum = gradwire::api::switch_of(known.checksum, function, "checksum")};
    if (known.ranks_per_node != 0) {
      wanted.ranks_per_node = known.ranks_per_node;
    }
    result = new gradwire_communicator{gradwire::mpi::make_communicator(comm, wanted)};
  });
}

gradwire_status gradwire_table_create_mpi(MPI_Comm comm, const gradwire_policy* policy,
                                          const gradwire_table_options* options, gradwire_table** table) {
  const char* function = __func__;
  return guard([&] {
    gradwire_table*& result = required(table, function, "table");
    result = nullptr;
    result =
        new gradwire_table{gradwire::mpi::make_table(comm, gradwire::api::table_options_of(options, policy, function))};
  });
}

}  // extern "C"
