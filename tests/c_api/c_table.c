#include <gradwire/mpi.h>
#include <gradwire/tables.h>
#include <gradwire/tables.h> /* may be included twice */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "c_side.h"
#include "c_try.h"

enum { kRows = 64, kWidth = 3, kClocks = 4 };

/* The number of visited rows, and the last id. */
struct seen {
  uint64_t rows;
  uint64_t id;
  float sum;
};

static void look(void* context, uint64_t id, const float* values, uint32_t width) {
  struct seen* seen = context;
  ++seen->rows;
  seen->id = id;
  for (uint32_t i = 0; i < width; ++i) {
    seen->sum += values[i];
  }
}

/* Each rank pushes a gradient of 1 to every row in every clock. */
static int clocks(gradwire_table* table, const uint64_t* ids, const float* ones) {
  for (int step = 0; step < kClocks; ++step) {
    TRY(gradwire_table_push(table, ids, kRows, ones));
    TRY(gradwire_table_tick(table));
    TRY(gradwire_table_progress(table));
  }
  uint64_t clock = 0;
  TRY(gradwire_table_clock(table, &clock));
  HOLDS(clock == kClocks);
  TRY(gradwire_table_synchronize(table));
  return 0;
}

/* Checks that all rows hold `value`, here and in a snapshot. */
static int check(gradwire_table* table, const uint64_t* ids, float value) {
  float rows[kRows * kWidth] = {0};
  TRY(gradwire_table_pull(table, ids, kRows, rows));
  for (int i = 0; i < kRows * kWidth; ++i) {
    HOLDS(fabsf(rows[i] - value) < 1e-5F);
  }
  gradwire_table_snapshot* snapshot = NULL;
  TRY(gradwire_table_snapshot_create(table, &snapshot));
  struct seen seen = {0};
  TRY(gradwire_table_snapshot_visit(snapshot, look, &seen));
  uint64_t held = 0;
  TRY(gradwire_table_snapshot_rows(snapshot, &held));
  HOLDS(seen.rows == held);
  HOLDS(fabsf(seen.sum - value * (float)(held * kWidth)) < 1e-2F);
  if (held > 0) {
    const float* values = NULL;
    TRY(gradwire_table_snapshot_find(snapshot, seen.id, &values));
    HOLDS(values != NULL && fabsf(values[kWidth - 1] - value) < 1e-5F);
  }
  gradwire_table_snapshot_destroy(snapshot);
  return 0;
}

int c_side_table(MPI_Comm comm, const char* directory) {
  const gradwire_table_options options = {.struct_size = sizeof options,
                                          .name = "users",
                                          .rows = kRows,
                                          .width = kWidth,
                                          .learning_rate = 0.5F,
                                          .staleness = GRADWIRE_UNBOUNDED,
                                          .cache_bytes = 65536};
  gradwire_table* table = NULL;
  TRY(gradwire_table_create_mpi(comm, NULL, &options, &table));
  const float trained = -0.5F * (float)(kClocks * gradwire_table_world_size(table));
  uint64_t ids[kRows];
  float ones[kRows * kWidth];
  for (int i = 0; i < kRows * kWidth; ++i) {
    ids[i / kWidth] = (uint64_t)(i / kWidth);
    ones[i] = 1;
  }
  int line = clocks(table, ids, ones);
  if (line == 0) {
    line = check(table, ids, trained);
  }
  if (line != 0) {
    return line;
  }
  TRY(gradwire_table_save(table, directory));
  TRY(gradwire_table_push(table, ids, kRows, ones));
  TRY(gradwire_table_synchronize(table));
  line = check(table, ids, trained - 0.5F * (float)gradwire_table_world_size(table));
  if (line != 0) {
    return line;
  }
  TRY(gradwire_table_load(table, directory));
  line = check(table, ids, trained);
  gradwire_table_destroy(table);
  return line;
}

/* Makes steps of a session with a table that counts by them: each rank pushes a gradient of 1 to every row. */
static int session_steps(gradwire_session* session, uint32_t table, int steps) {
  uint64_t ids[kRows];
  float ones[kRows * kWidth];
  for (int i = 0; i < kRows * kWidth; ++i) {
    ids[i / kWidth] = (uint64_t)(i / kWidth);
    ones[i] = 1;
  }
  float before[kWidth] = {0};
  TRY(gradwire_session_pull(session, table, ids + 5, 1, before));
  for (int step = 0; step < steps; ++step) {
    TRY(gradwire_session_push(session, table, ids, kRows, ones));
    TRY(gradwire_session_finish(session, NULL));
  }
  float rows[kRows * kWidth] = {0};
  TRY(gradwire_session_pull(session, table, ids, kRows, rows));
  for (int i = 0; i < kRows * kWidth; ++i) {
    HOLDS(fabsf(rows[i] - (before[0] - 0.5F * (float)steps)) < 1e-5F);
  }
  return 0;
}

int c_side_session_table(MPI_Comm comm, const char* directory) {
  const gradwire_table_options options = {.struct_size = sizeof options,
                                          .name = "items",
                                          .rows = kRows,
                                          .width = kWidth,
                                          .learning_rate = 0.5F,
                                          .copies = 2};
  float left[kWidth] = {0};
  for (int run = 0; run < 2; ++run) { /* the second run goes on where the first was saved */
    gradwire_session* session = NULL;
    TRY(gradwire_session_create_mpi(comm, NULL, NULL, &session));
    uint32_t table = 99;
    TRY(gradwire_session_add_table(session, NULL, &options, &table));
    HOLDS(table == 0);
    const uint64_t id = kRows - 1;
    if (run == 0) {
      const int line = session_steps(session, table, kClocks);
      if (line != 0) {
        return line;
      }
      TRY(gradwire_session_pull(session, table, &id, 1, left));
      TRY(gradwire_session_finish(session, NULL));
      TRY(gradwire_session_save(session, directory));
    } else {
      TRY(gradwire_session_load(session, directory));
      float found[kWidth] = {0};
      TRY(gradwire_session_pull(session, table, &id, 1, found));
      for (int i = 0; i < kWidth; ++i) {
        HOLDS(found[i] == left[i] && fabsf(found[i] + 0.5F * kClocks) < 1e-5F);
      }
    }
    gradwire_session_destroy(session);
    MPI_Barrier(comm); /* all ranks have saved before one loads */
  }
  return 0;
}
