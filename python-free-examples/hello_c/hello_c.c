/* Gradient descent in C with a session: each rank pulls towards its own target, the mean gradient towards the mean of
 * all.
 *
 *   mpirun -np 4 hello_c [POLICY.toml] */
#include <gradwire/gradwire.h>
#include <gradwire/mpi.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 100000, kSteps = 40 };

/* Ends the job with the reason if a call failed. */
static void check(gradwire_status status) {
  if (status != GRADWIRE_OK) {
    fprintf(stderr, "%s: %s\n", gradwire_status_text(status), gradwire_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);

  gradwire_policy* policy = NULL; /* the default: int8 */
  if (argc > 1) {
    check(gradwire_policy_load(argv[1], &policy));
  }
  gradwire_session_options options = {.struct_size = sizeof options}; /* all others 0: the defaults */
  options.timeout_ms = 60000;
  gradwire_session* session = NULL;
  check(gradwire_session_create_mpi(MPI_COMM_WORLD, policy, &options, &session));
  gradwire_policy_destroy(policy);

  const int rank = gradwire_session_rank(session);
  const int ranks = gradwire_session_world_size(session);
  float* weights = calloc(kCount, sizeof *weights);
  float* gradient = calloc(kCount, sizeof *gradient);
  if (weights == NULL || gradient == NULL) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  uint32_t id = 0;
  check(gradwire_session_add(session, "weights", gradient, kCount, GRADWIRE_F32, &id));
  check(gradwire_session_broadcast(session, weights, kCount, GRADWIRE_F32, 0));

  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kCount; ++i) {
      gradient[i] = weights[i] - (float)(rank + 1) * sinf((float)i);
    }
    check(gradwire_session_ready(session, id));
    check(gradwire_session_finish(session, NULL));
    for (int i = 0; i < kCount; ++i) {
      weights[i] -= 0.3F * gradient[i];
    }
  }

  float worst = 0;
  for (int i = 0; i < kCount; ++i) {
    worst = fmaxf(worst, fabsf(weights[i] - 0.5F * (float)(ranks + 1) * sinf((float)i)));
  }
  gradwire_statistics statistics = {.struct_size = sizeof statistics};
  check(gradwire_session_statistics(session, &statistics));
  if (rank == 0) {
    printf("gradwire %s, %d ranks: largest distance from the mean target %.4f, ratio %.2f\n", gradwire_version(), ranks,
           (double)worst, (double)statistics.bytes_uncompressed / (double)statistics.bytes_sent);
  }
  gradwire_session_destroy(session);
  free(weights);
  free(gradient);
  MPI_Finalize();
  return 0;
}
