#include <gradwire/gradwire.h>
#include <gradwire/mpi.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "c_side.h"
#include "c_try.h"

enum { kSize = 3000, kSteps = 5 };

/* Makes local steps: weights and momentum are synchronised every second step. Returns after sync_parameters(), when all
 * ranks hold the same. */
static int train(gradwire_session* session, uint32_t id, const float* gradient, float* weights, float* momentum) {
  for (int step = 0; step < kSteps; ++step) {
    gradwire_ticket ticket = {.struct_size = sizeof ticket};
    TRY(gradwire_session_ready_ticket(session, id, &ticket));
    TRY(gradwire_session_finish(session, NULL));
    int32_t done = 0;
    TRY(gradwire_session_done(session, &ticket, &done));
    HOLDS(done == 1);
    for (int i = 0; i < kSize; ++i) {
      momentum[i] = 0.5F * momentum[i] + gradient[i];
      weights[i] -= 0.125F * momentum[i];
    }
  }
  TRY(gradwire_session_sync_parameters(session));
  return 0;
}

/* Returns the explanation of every tensor in memory of the caller, after asking for its length. */
static int explanation(gradwire_session* session, char** text) {
  uint64_t length = 0;
  TRY(gradwire_session_explain(session, NULL, 0, &length));
  *text = malloc(length + 1);
  HOLDS(*text != NULL);
  TRY(gradwire_session_explain(session, *text, length + 1, NULL));
  HOLDS(strlen(*text) == length);
  return 0;
}

int c_side_local_steps(MPI_Comm comm) {
  gradwire_policy* policy = NULL;
  TRY(gradwire_policy_parse("[defaults]\nsync = { every = 2 }\n", NULL, &policy));
  gradwire_session* session = NULL;
  TRY(gradwire_session_create_mpi(comm, policy, NULL, &session));
  gradwire_policy_destroy(policy);
  const int rank = gradwire_session_rank(session);
  const int ranks = gradwire_session_world_size(session);
  float* memory = calloc(3 * (size_t)kSize, sizeof *memory);
  HOLDS(memory != NULL);
  float* gradient = memory;
  float* weights = memory + kSize;
  float* momentum = memory + 2 * (size_t)kSize;
  for (int i = 0; i < kSize; ++i) {
    gradient[i] = (float)(rank + 1);
  }
  void* states[] = {momentum};
  const gradwire_tensor_parameters parameters = {
      .struct_size = sizeof parameters, .parameter = weights, .states = states, .state_count = 1, .ndim = 2};
  uint32_t id = 99;
  TRY(gradwire_session_add_with_parameters(session, "w", gradient, kSize, GRADWIRE_F32, &parameters, &id));
  char* text = NULL;
  const int line = explanation(session, &text);
  if (line != 0) {
    return line;
  }
  HOLDS(strstr(text, "every 2") != NULL);
  free(text);
  const int failed = train(session, id, gradient, weights, momentum);
  if (failed != 0) {
    return failed;
  }
  /* Everything is linear, so the mean of the ranks' separate steps is a step with the mean gradient. */
  float mean_weight = 0;
  float mean_momentum = 0;
  for (int step = 0; step < kSteps; ++step) {
    mean_momentum = 0.5F * mean_momentum + (float)(ranks + 1) / 2;
    mean_weight -= 0.125F * mean_momentum;
  }
  for (int i = 0; i < kSize; ++i) {
    HOLDS(gradient[i] == (float)(rank + 1));
    HOLDS(fabsf(weights[i] - mean_weight) < 1e-5F && fabsf(momentum[i] - mean_momentum) < 1e-5F);
  }
  gradwire_session_destroy(session);
  free(memory);
  return 0;
}
