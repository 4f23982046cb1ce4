#include "c_side.h"

#include <gradwire/gradwire.h>
#include <gradwire/gradwire.h> /* may be included twice */
#include <gradwire/mpi.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "c_try.h"

/* Programs were compiled with these numbers, so none may ever change. */
#define PINNED(name, expression) typedef char pinned_##name[(expression) ? 1 : -1]
PINNED(ok, GRADWIRE_OK == 0);
PINNED(invalid_argument, GRADWIRE_INVALID_ARGUMENT == 1);
PINNED(unsupported, GRADWIRE_UNSUPPORTED == 2);
PINNED(corrupt, GRADWIRE_CORRUPT == 3);
PINNED(mismatch, GRADWIRE_MISMATCH == 4);
PINNED(transport, GRADWIRE_TRANSPORT == 5);
PINNED(timeout, GRADWIRE_TIMEOUT == 6);
PINNED(aborted, GRADWIRE_ABORTED == 7);
PINNED(out_of_memory, GRADWIRE_OUT_OF_MEMORY == 8);
PINNED(internal, GRADWIRE_INTERNAL == 9);
PINNED(expelled, GRADWIRE_EXPELLED == 10);
PINNED(too_few, GRADWIRE_TOO_FEW == 11);
PINNED(dtypes, GRADWIRE_F32 == 1 && GRADWIRE_F16 == 2 && GRADWIRE_BF16 == 3 && GRADWIRE_F64 == 4);
PINNED(reductions, GRADWIRE_SUM == 1 && GRADWIRE_MEAN == 2);
PINNED(algorithms,
       GRADWIRE_TWO_SHOT == 1 && GRADWIRE_ONE_SHOT == 2 && GRADWIRE_DENSE == 3 && GRADWIRE_HIERARCHICAL == 4);
PINNED(algorithm_auto, GRADWIRE_ALGORITHM_DEFAULT == 0 && GRADWIRE_ALGORITHM_AUTO == 5);
PINNED(switches, GRADWIRE_ON == 1 && GRADWIRE_OFF == 2);
PINNED(nonfinite, GRADWIRE_PROPAGATE == 1 && GRADWIRE_SKIP == 2);
/* New fields may only be added at the end. */
PINNED(session_options, offsetof(gradwire_session_options, timeout_ms) == 8 &&
                            offsetof(gradwire_session_options, compare_ranks_every) == 28);
PINNED(call_options,
       offsetof(gradwire_call_options, feedback) == 32 && offsetof(gradwire_call_options, intra_codec) == 40);
PINNED(communicator_options, offsetof(gradwire_communicator_options, ranks_per_node) == 20);
PINNED(statistics, offsetof(gradwire_statistics, seconds) == 40 && offsetof(gradwire_statistics, bytes_inter) == 48);
PINNED(outcome, offsetof(gradwire_step_outcome, nonfinite) == 20);
PINNED(ticket, offsetof(gradwire_ticket, step) == 8 && offsetof(gradwire_ticket, session) == 20);
PINNED(parameters, offsetof(gradwire_tensor_parameters, parameter) == 8 &&
                       offsetof(gradwire_tensor_parameters, state_count) == 24 &&
                       offsetof(gradwire_tensor_parameters, ndim) == 28);
PINNED(tensor_options,
       offsetof(gradwire_tensor_options, scale) == 8 && offsetof(gradwire_tensor_options, reserved) == 20);
PINNED(link, offsetof(gradwire_link_estimate, inter_bytes_per_second) == 24 &&
                 offsetof(gradwire_link_estimate, measured_in_seconds) == 48);
PINNED(advice,
       offsetof(gradwire_batch_advice, accumulation) == 16 && offsetof(gradwire_batch_advice, noise_scale) == 40);
PINNED(row_optimizers, GRADWIRE_ROW_SGD == 1 && GRADWIRE_ROW_ADAGRAD == 2);
PINNED(unbounded, GRADWIRE_UNBOUNDED == UINT64_MAX);
PINNED(table_options,
       offsetof(gradwire_table_options, width) == 24 && offsetof(gradwire_table_options, read_own_writes) == 44 &&
           offsetof(gradwire_table_options, staleness) == 72 && offsetof(gradwire_table_options, tensor) == 96 &&
           offsetof(gradwire_table_options, copies) == 104);
PINNED(row_statistics, offsetof(gradwire_row_statistics, rows_pushed) == 48 &&
                           offsetof(gradwire_row_statistics, bytes_sent) == 88 &&
                           offsetof(gradwire_row_statistics, wait_seconds) == 128);

enum { kLarge = 100000, kSmall = 10 };

static int steps(gradwire_session* session, float* large, double* small, uint32_t large_id, uint32_t small_id) {
  const int rank = gradwire_session_rank(session);
  for (uint64_t step = 0; step < 2; ++step) {
    for (int i = 0; i < kLarge; ++i) {
      large[i] = (float)rank;
    }
    for (int i = 0; i < kSmall; ++i) {
      small[i] = rank + 0.25;
    }
    TRY(gradwire_session_ready(session, large_id));
    TRY(gradwire_session_ready(session, small_id));
    gradwire_step_outcome outcome = {.struct_size = sizeof outcome};
    TRY(gradwire_session_finish(session, &outcome));
    const double mean = (gradwire_session_world_size(session) - 1) / 2.0;
    if (outcome.step != step || outcome.skipped || outcome.nonfinite || fabs(large[kLarge - 1] - mean) > 0.02 ||
        small[kSmall - 1] != mean + 0.25) {
      return __LINE__;
    }
  }
  return 0;
}

int c_side_round_trip(MPI_Comm comm, double* ratio) {
  gradwire_policy* policy = NULL;
  TRY(gradwire_policy_parse("[[rule]]\nmatch = \"small\"\ncodec = \"exact\"\n", NULL, &policy));
  gradwire_session* session = NULL;
  TRY(gradwire_session_create_mpi(comm, policy, NULL, &session));
  gradwire_policy_destroy(policy);
  gradwire_policy_destroy(NULL);
  float* large = calloc(kLarge, sizeof *large);
  double small[kSmall] = {0};
  uint32_t large_id = 99;
  uint32_t small_id = 99;
  TRY(gradwire_session_add(session, "large", large, kLarge, GRADWIRE_F32, &large_id));
  TRY(gradwire_session_add(session, "small", small, kSmall, GRADWIRE_F64, &small_id));
  const int line = steps(session, large, small, large_id, small_id);
  if (line != 0) {
    return line;
  }
  gradwire_statistics statistics = {.struct_size = sizeof statistics};
  TRY(gradwire_session_statistics(session, &statistics));
  *ratio = statistics.bytes_sent == 0 ? 0 : (double)statistics.bytes_uncompressed / (double)statistics.bytes_sent;
  gradwire_session_destroy(session);
  free(large);
  return 0;
}
