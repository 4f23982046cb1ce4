#include <gradwire/gradwire.h>
#include <gradwire/mpi.h>
#include <stdlib.h>

#include "c_side.h"
#include "c_try.h"

enum { kRanks = 8, kEach = 1000 };

/* Each rank owns a segment of parameters: gradients are summed to the owner, which sends the parameters. */
int c_side_segments(MPI_Comm comm) {
  gradwire_communicator* communicator = NULL;
  TRY(gradwire_communicator_create_mpi(comm, NULL, &communicator));
  const int ranks = gradwire_communicator_world_size(communicator);
  const int rank = gradwire_communicator_rank(communicator);
  HOLDS(ranks <= kRanks);
  uint64_t counts[kRanks] = {0};
  uint64_t all = 0;
  uint64_t first = 0;
  for (int r = 0; r < ranks; ++r) {
    counts[r] = kEach + (uint64_t)r;
    first += r < rank ? counts[r] : 0;
    all += counts[r];
  }
  double* gradients = calloc(all, sizeof *gradients);
  double* parameters = calloc(all, sizeof *parameters);
  HOLDS(gradients != NULL && parameters != NULL);
  for (uint64_t i = 0; i < all; ++i) {
    gradients[i] = (double)i + rank;
  }
  gradwire_call_options options = {.struct_size = sizeof options, .codec = "exact"};
  TRY(gradwire_reduce_scatter(communicator, gradients, parameters + first, counts, GRADWIRE_F64, &options, NULL));
  gradwire_statistics statistics = {.struct_size = sizeof statistics};
  TRY(gradwire_all_gather(communicator, parameters + first, parameters, counts, GRADWIRE_F64, &options, &statistics));
  HOLDS(statistics.calls == 1);
  for (uint64_t i = 0; i < all; ++i) {
    HOLDS(parameters[i] == (double)i * ranks + ranks * (ranks - 1) / 2);
  }
  free(gradients);
  free(parameters);
  gradwire_communicator_destroy(communicator);
  return 0;
}
