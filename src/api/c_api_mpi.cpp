// gradwire/mpi.h.
#include "gradwire/mpi.h"

#include "api/c_api.hpp"
#include "gradwire/mpi.hpp"

using gradwire::api::guard;
using gradwire::api::required;

extern "C" {

gradwire_status gradwire_session_create_mpi(MPI_Comm comm, const gradwire_policy* policy,
                                            const gradwire_session_options* options, gradwire_session** session) {
  const char* function = __func__;
  return guard([&] {
    gradwire_session*& result = required(session, function, "session");
    result = nullptr;
    result =
        new gradwire_session{gradwire::mpi::make_session(comm, policy == nullptr ? gradwire::Policy() : policy->policy,
                                                         gradwire::api::session_options_of(options, function))};
  });
}

gradwire_status gradwire_communicator_create_mpi(MPI_Comm comm, const gradwire_communicator_options* options,
                                                 gradwire_communicator** communicator) {
  const char* function = __func__;
  return guard([&] {
    gradwire_communicator*& result = required(communicator, function, "communicator");
    result = nullptr;
    result = new gradwire_communicator{
        gradwire::mpi::make_communicator(comm, gradwire::api::communicator_options_of(options, function))};
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
