/* gradwire for C: embedding tables whose rows are shared out over the ranks of a job. Only rows that are asked for
 * travel. docs/explanation/tables.md says what a read may miss, what travels and what files hold; gradwire/mpi.h makes
 * tables from an MPI_Comm. The tables of a session, whose rows count with its steps, are below.
 *
 * Rows are `width` floats in host memory. Ids are 0 .. rows - 1, in any order, also several times or none; ids and rows
 * may be NULL where their count is 0. Calls may come from any thread, below MPI_THREAD_SERIALIZED only from the one
 * that made the table. GRADWIRE_INVALID_ARGUMENT harms nobody and changes nothing. Any other error, where its function
 * does not say otherwise, ends the table on every rank: later calls return it, and on other ranks they return
 * GRADWIRE_ABORTED and name its origin. */
#ifndef GRADWIRE_TABLES_H
#define GRADWIRE_TABLES_H

#include "gradwire/gradwire.h"

/* NOLINTBEGIN(modernize-*): this is C */
#ifdef __cplusplus
extern "C" {
#endif

/* How an owner applies a gradient g to a row v. */
typedef enum gradwire_row_optimizer {
  GRADWIRE_ROW_OPTIMIZER_DEFAULT = 0, /* sgd */
  GRADWIRE_ROW_SGD = 1,               /* v -= rate g */
  GRADWIRE_ROW_ADAGRAD = 2            /* a += g^2, v -= rate g / (sqrt(a) + epsilon), by element */
} gradwire_row_optimizer;

/* With this staleness a rank never waits for others' clocks, and never uses a cached row without asking its owner. */
#define GRADWIRE_UNBOUNDED UINT64_MAX

typedef struct gradwire_table gradwire_table;
typedef struct gradwire_table_snapshot gradwire_table_snapshot;

/* Options of a table, the same on every rank except for cache_bytes, timeout_ms, store and memory. `rows` and `width`
 * must be set. */
typedef struct gradwire_table_options {
  size_t struct_size;
  const char* name; /* in messages and file names: letters, digits, '.', '_', '-'; NULL: "table" */
  uint64_t rows;
  uint32_t width; /* elements of a row, to 4096 */
  gradwire_row_optimizer optimizer;
  float learning_rate;             /* 0: 0.01 */
  float epsilon;                   /* of adagrad; 0: 1e-10 */
  float initial_scale;             /* rows begin as uniform in [-initial_scale, initial_scale): by seed and id */
  gradwire_switch read_own_writes; /* default: on. A rank sees its own pushes in its next pull */
  uint64_t seed;
  const char* codec;          /* of row values on the wire: "exact", "bf16", "int8"; NULL: exact */
  const char* gradient_codec; /* likewise of gradients; what it drops is lost */
  uint64_t staleness;         /* in clocks, or GRADWIRE_UNBOUNDED */
  uint64_t cache_bytes;       /* of other ranks' rows kept here; 0: none */
  int64_t timeout_ms;         /* for any single wait; 0: five minutes */
  const char* tensor;         /* the name that rules of a policy match; NULL: name */
  uint32_t copies;            /* of each row, on as many ranks; 0: 1. Of a session's table alone */
  uint32_t reserved;          /* 0 */
  const char* store;          /* "file:DIR": rows that do not fit lie in a scratch file there; NULL: all in memory */
  uint64_t memory;            /* with a store: most bytes for this rank's rows, with their index and buffers */
} gradwire_table_options;

/* Counts of this rank since the table was made. Rows are counted after duplicates were merged. */
typedef struct gradwire_row_statistics {
  size_t struct_size;
  uint64_t rows_pulled;
  uint64_t rows_own;       /* of these: this rank's own, never sent */
  uint64_t rows_cached;    /* fresh enough: nothing was sent */
  uint64_t rows_unchanged; /* their ids were sent, and no values came back */
  uint64_t rows_received;
  uint64_t rows_pushed;
  uint64_t maximum_age;    /* the oldest row that a pull returned, in clocks */
  uint64_t rows_held;      /* of this rank's shard: those that ever changed */
  uint64_t rows_nonfinite; /* of rows_held: with NaN or Inf in values or optimizer state now */
  uint64_t cache_bytes;    /* in use */
  uint64_t bytes_sent;     /* at the transport, of all messages of this table */
  uint64_t bytes_received;
  uint64_t messages_sent;
  uint64_t messages_received;
  double mean_age;         /* of the rows that pulls returned, in clocks */
  double wait_seconds;     /* inside pulls */
  uint64_t rows_in_memory; /* of rows_held; all of them without a store. The rest below is 0 then */
  uint64_t rows_in_file;
  uint64_t store_hits;  /* rows that were asked for or written to, and lay in memory */
  uint64_t store_reads; /* the others, which came from the file */
  uint64_t store_memory_bytes;
  uint64_t store_file_bytes;
} gradwire_row_statistics;

GRADWIRE_API int gradwire_table_rank(const gradwire_table* table);       /* -1 for NULL */
GRADWIRE_API int gradwire_table_world_size(const gradwire_table* table); /* -1 for NULL */
/* `rank` receives the rank that holds the row. */
GRADWIRE_API gradwire_status gradwire_table_owner(const gradwire_table* table, uint64_t id, int* rank);

/* Copies row ids[i] to rows[i * width]; `rows` has room for count * width floats. Blocks until the rows are recent
 * enough. GRADWIRE_TIMEOUT names the ranks that it waited for. */
GRADWIRE_API gradwire_status gradwire_table_pull(gradwire_table* table, const uint64_t* ids, uint64_t count,
                                                 float* rows);
/* Sends gradients[i * width] for row ids[i] to its owner, with those of duplicates added up, and does not wait for it;
 * the memory may be reused on return. GRADWIRE_INVALID_ARGUMENT names an id with NaN or Inf; nothing was sent then. */
GRADWIRE_API gradwire_status gradwire_table_push(gradwire_table* table, const uint64_t* ids, uint64_t count,
                                                 const float* gradients);
/* Replaces rows; of duplicates the last one counts. Optimizer state stays. The rest is as for push. */
GRADWIRE_API gradwire_status gradwire_table_assign(gradwire_table* table, const uint64_t* ids, uint64_t count,
                                                   const float* values);
/* Requests rows that a later pull will want; does not wait. GRADWIRE_INVALID_ARGUMENT without cache_bytes and store. */
GRADWIRE_API gradwire_status gradwire_table_prefetch(gradwire_table* table, const uint64_t* ids, uint64_t count);

/* Ends this rank's step: later pushes belong to the next clock. */
GRADWIRE_API gradwire_status gradwire_table_tick(gradwire_table* table);
/* `clock` receives the number of this rank's ticks. */
GRADWIRE_API gradwire_status gradwire_table_clock(const gradwire_table* table, uint64_t* clock);
/* Serves other ranks. Call it now and then in long computations, where MPI grants less than MPI_THREAD_MULTIPLE. */
GRADWIRE_API gradwire_status gradwire_table_progress(gradwire_table* table);
/* On every rank: every later pull includes all pushes that any rank made before this call. */
GRADWIRE_API gradwire_status gradwire_table_synchronize(gradwire_table* table);

/* On every rank: writes a snapshot, one file a rank below `directory`, and returns when all are written. If a rank
 * cannot write its own, all fail, the earlier files are as they were, and the table goes on. */
GRADWIRE_API gradwire_status gradwire_table_save(gradwire_table* table, const char* directory);
/* On every rank: replaces all rows by those that a world of any size saved; clocks go on. After GRADWIRE_CORRUPT or
 * GRADWIRE_MISMATCH (another table's files) the table is as before on every rank, and goes on. */
GRADWIRE_API gradwire_status gradwire_table_load(gradwire_table* table, const char* directory);

/* Counts of this rank since the table was made. */
GRADWIRE_API gradwire_status gradwire_table_statistics(const gradwire_table* table,
                                                       gradwire_row_statistics* statistics);
/* Gives up on every rank for the reason `why`. */
GRADWIRE_API gradwire_status gradwire_table_abort(gradwire_table* table, const char* why);
/* On every rank: serves the others until all have come here, within the timeout, and frees the table. A rank that
 * leaves early after an error of its own calls gradwire_table_abort() first. Must come before MPI_Finalize. */
GRADWIRE_API void gradwire_table_destroy(gradwire_table* table);

/* This rank's part of a consistent view of the table, without rows that nobody ever changed. Every rank makes one, at
 * any place in its program: it holds the pushes that each rank made before its call, and no later ones. It may outlive
 * its table, and any thread may read it. */
GRADWIRE_API gradwire_status gradwire_table_snapshot_create(gradwire_table* table, gradwire_table_snapshot** snapshot);
/* `rows` receives the number of rows of this part. */
GRADWIRE_API gradwire_status gradwire_table_snapshot_rows(const gradwire_table_snapshot* snapshot, uint64_t* rows);
/* `values` receives the address of the row's `width` floats, which the snapshot owns; NULL where this part has no such
 * row. */
GRADWIRE_API gradwire_status gradwire_table_snapshot_find(const gradwire_table_snapshot* snapshot, uint64_t id,
                                                          const float** values);
/* Calls visit(context, id, values, width) for each row, by ascending id. The snapshot owns `values`. */
GRADWIRE_API gradwire_status gradwire_table_snapshot_visit(const gradwire_table_snapshot* snapshot,
                                                           void (*visit)(void* context, uint64_t id,
                                                                         const float* values, uint32_t width),
                                                           void* context);
GRADWIRE_API void gradwire_table_snapshot_destroy(gradwire_table_snapshot* snapshot);

/* Tables of a session: a pull sees the pushes of all steps before, and of no other. The session's save and load hold
 * their rows. Calls come from the thread that makes steps; GRADWIRE_INVALID_ARGUMENT and
 * GRADWIRE_UNSUPPORTED harm nobody, any other error ends the session on every rank. The session's timeout counts, and
 * timeout_ms is ignored. */

/* Adds a table; same options and order on every rank, before the first step. `policy` is as in
 * gradwire_table_create_mpi(). `table` receives its number and may be NULL; numbers count from 0.
 * GRADWIRE_INVALID_ARGUMENT for options of a gradwire_table alone: staleness, cache_bytes, read_own_writes.
 * GRADWIRE_UNSUPPORTED for codecs other than exact, bf16 and int8. */
GRADWIRE_API gradwire_status gradwire_session_add_table(gradwire_session* session, const gradwire_policy* policy,
                                                        const gradwire_table_options* options, uint32_t* table);
/* Copies row ids[i] to rows[i * width]; `rows` has room for count * width floats. On every rank, between a finish and
 * the first ready, for the same table. Blocks. */
GRADWIRE_API gradwire_status gradwire_session_pull(gradwire_session* session, uint32_t table, const uint64_t* ids,
                                                   uint64_t count, float* rows);
/* Adds gradients[i * width] to the step's pushes to row ids[i]. finish applies them once a row, as the ranks' sum or
 * mean. On any rank, any number of times; the memory may be reused on return. GRADWIRE_INVALID_ARGUMENT names an id
 * with NaN or Inf; nothing of that call was kept then. */
GRADWIRE_API gradwire_status gradwire_session_push(gradwire_session* session, uint32_t table, const uint64_t* ids,
                                                   uint64_t count, const float* gradients);
/* The same as gradwire_table_statistics(), counted since the session was made. */
GRADWIRE_API gradwire_status gradwire_session_table_statistics(const gradwire_session* session, uint32_t table,
                                                               gradwire_row_statistics* statistics);

/* NOLINTEND(modernize-*) */
#ifdef __cplusplus
}
#endif

#endif
