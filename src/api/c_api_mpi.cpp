// gradwire/mpi.h.
#include "gradwire/mpi.h"

#include "api/c_api.hpp"
#include "gradwire/mpi.hpp"

using gradwire::api::guard;
using gradwire::api::required;

namespace {

gradwire::Nonfinite nonfinite_of(gradwire_nonfinite nonfinite) {
  switch (nonfinite) {
    case GRADWIRE_NONFINITE_DEFAULT: return gradwire::Nonfinite::automatic;
    case GRADWIRE_PROPAGATE: return gradwire::Nonfinite::propagate;
    case GRADWIRE_SKIP: return gradwire::Nonfinite::skip;
  }
  throw gradwire::Error(gradwire::ErrorCode::invalid_argument,
                        "nonfinite is " + std::to_string(nonfinite) + "; write one of gradwire_nonfinite");
}

gradwire::SessionOptions session_options(const gradwire_session_options* given) {
  const gradwire_session_options known = gradwire::api::read_struct(given, "gradwire_session_options");
  gradwire::SessionOptions options;
  options.reduction = gradwire::api::reduction_of(known.reduction, gradwire::Reduction::mean);
  options.timeout = gradwire::api::timeout_of(known.timeout_ms);
  options.checksum = gradwire::api::switch_of(known.checksum);
  options.nonfinite = nonfinite_of(known.nonfinite);
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
        comm, policy == nullptr ? gradwire::Policy() : policy->policy, session_options(options))};
  });
}

gradwire_status gradwire_communicator_create_mpi(MPI_Comm comm, const gradwire_communicator_options* options,
                                                 gradwire_communicator** communicator) {
  const char* function = __func__;
  return guard([&] {
    gradwire_communicator*& result = required(communicator, function, "communicator");
    result = nullptr;
    const gradwire_communicator_options known = gradwire::api::read_struct(options, "gradwire_communicator_options");
    gradwire::CommunicatorOptions wanted{.timeout = gradwire::api::timeout_of(known.timeout_ms),
                                         .checksum = gradwire::api::switch_of(known.checksum)};
    if (known.ranks_per_node != 0) {
      wanted.ranks_per_node = known.ranks_per_node;
    }
    result = new gradwire_communicator{gradwire::mpi::make_communicator(comm, wanted)};
  });
}

}  // extern "C"
