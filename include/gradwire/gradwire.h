/* gradwire for C (C99 and later) and for every language that calls C: policies, sessions, collectives;
 * gradwire/tables.h has embedding tables. Link libgradwire_c and include gradwire/mpi.h to make all of them from an
 * MPI_Comm.
 *
 * Every function that can fail returns a gradwire_status; gradwire_last_error() then says what is wrong and what to do.
 * A NULL where none is allowed, and a number that is no enumerator, are GRADWIRE_INVALID_ARGUMENT. Handles are made by
 * a function that ends in create, load or parse and freed by the destroy of their type, which accepts NULL. Data lies
 * in host memory, belongs to the caller, and may be NULL where its count is 0. The rules about ranks, threads and
 * ownership are those of the C++ function of the same name in gradwire/session.hpp and gradwire/communicator.hpp. No
 * C++ exception leaves the library. */
#ifndef GRADWIRE_GRADWIRE_H
#define GRADWIRE_GRADWIRE_H

/* NOLINTBEGIN(modernize-*): this is C */
#include <stddef.h>
#include <stdint.h>

#define GRADWIRE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers never change; new ones may be added. */
typedef enum gradwire_status {
  GRADWIRE_OK = 0,
  GRADWIRE_INVALID_ARGUMENT = 1, /* the caller passed something that can never work */
  GRADWIRE_UNSUPPORTED = 2,      /* valid, but not in this build or on this transport */
  GRADWIRE_CORRUPT = 3,          /* bytes that are not what their header or checksum says */
  GRADWIRE_MISMATCH = 4,         /* ranks disagree: tensors, policy, order, wire version */
  GRADWIRE_TRANSPORT = 5,        /* the message layer below reported a failure */
  GRADWIRE_TIMEOUT = 6,          /* a peer did not answer in time; the message names it */
  GRADWIRE_ABORTED = 7,          /* another rank, or another thread, gave up first */
  GRADWIRE_OUT_OF_MEMORY = 8,
  GRADWIRE_INTERNAL = 9,  /* a bug in gradwire */
  GRADWIRE_EXPELLED = 10, /* the other ranks went on without this one, which must end */
  GRADWIRE_TOO_FEW = 11   /* fewer ranks are left than the policy's min_ranks */
} gradwire_status;

typedef enum gradwire_dtype { GRADWIRE_F32 = 1, GRADWIRE_F16 = 2, GRADWIRE_BF16 = 3, GRADWIRE_F64 = 4 } gradwire_dtype;

/* In options 0 always stands for the default. */
typedef enum gradwire_reduction {
  GRADWIRE_REDUCTION_DEFAULT = 0, /* mean in sessions, sum in calls */
  GRADWIRE_SUM = 1,
  GRADWIRE_MEAN = 2
} gradwire_reduction;

typedef enum gradwire_algorithm {
  GRADWIRE_ALGORITHM_DEFAULT = 0, /* two_shot */
  GRADWIRE_TWO_SHOT = 1,
  GRADWIRE_ONE_SHOT = 2,
  GRADWIRE_DENSE = 3,
  GRADWIRE_HIERARCHICAL = 4,
  GRADWIRE_ALGORITHM_AUTO = 5 /* the one of these that the cost model finds quickest, for each call */
} gradwire_algorithm;

typedef enum gradwire_switch { GRADWIRE_SWITCH_DEFAULT = 0, GRADWIRE_ON = 1, GRADWIRE_OFF = 2 } gradwire_switch;

typedef enum gradwire_nonfinite {
  GRADWIRE_NONFINITE_DEFAULT = 0, /* propagate; skip once a loss scale was set */
  GRADWIRE_PROPAGATE = 1,
  GRADWIRE_SKIP = 2
} gradwire_nonfinite;

typedef struct gradwire_policy gradwire_policy;
typedef struct gradwire_session gradwire_session;
typedef struct gradwire_communicator gradwire_communicator;
typedef struct gradwire_feedback gradwire_feedback;

/* Structs begin with their size, so that they may grow: write `gradwire_call_options options = {.struct_size = sizeof
 * options};` and set the fields that differ from the default. The library accepts sizes of other versions of this
 * header. A field that the library is too old to know must be 0, as must fields named `reserved`: else
 * GRADWIRE_UNSUPPORTED. */

typedef struct gradwire_session_options {
  size_t struct_size;
  int64_t timeout_ms; /* for any single wait; 0: five minutes */
  gradwire_reduction reduction;
  gradwire_switch checksum; /* default: as the transport says */
  gradwire_nonfinite nonfinite;
  uint32_t compare_ranks_every; /* debug: compare results across ranks every so many steps */
} gradwire_session_options;

typedef struct gradwire_communicator_options {
  size_t struct_size;
  int64_t timeout_ms;
  gradwire_switch checksum;
  uint32_t ranks_per_node; /* for hierarchical: so many ranks in a row share a node; 0: as MPI finds */
} gradwire_communicator_options;

/* Options of one call, equal on every rank. Of the feedback buffer only this holds: either every rank gives one or
 * none. */
typedef struct gradwire_call_options {
  size_t struct_size;
  const char* codec;      /* "int8", "topk(1%)+int8", ...; NULL: int8, in a broadcast exact */
  const char* second_hop; /* codec of the owner's encoding in two_shot and hierarchical; NULL: follows from codec */
  gradwire_algorithm algorithm;
  gradwire_reduction reduction;
  gradwire_feedback* feedback; /* error feedback: what this call drops is kept here; NULL: none */
  const char* intra_codec;     /* inside nodes in hierarchical, where codec is that between them; NULL: bf16 */
} gradwire_call_options;

/* Statistics of this rank. */
typedef struct gradwire_statistics {
  size_t struct_size;
  uint64_t calls;
  uint64_t bytes_in;           /* handed in, in the tensors' own dtype */
  uint64_t bytes_sent;         /* counted at the transport, headers and both hops included */
  uint64_t bytes_uncompressed; /* what the same collectives would send uncompressed */
  double seconds;              /* from start to end of each call, summed */
  uint64_t bytes_inter;        /* of bytes_sent, to ranks of other nodes */
} gradwire_statistics;

/* The result of gradwire_session_finish(); the same on every rank. */
typedef struct gradwire_step_outcome {
  size_t struct_size;
  uint64_t step;     /* the one that ended, from 0 */
  int32_t skipped;   /* 1: nothing was reduced, gradients are each rank's own */
  int32_t nonfinite; /* 1: NaN or Inf in a result, or in the gradients of a skipped step */
} gradwire_step_outcome;

/* Stands for the reduction that one ready belongs to. A plain value: it may be copied and need not be freed, and only
 * the library reads the fields behind the size. */
typedef struct gradwire_ticket {
  size_t struct_size;
  uint64_t step;
  uint32_t bucket;
  uint32_t session;
} gradwire_ticket;

/* The arrays that local steps change (sync = { every = N, ... } in policies). Each has the gradient's count and dtype,
 * belongs to the caller and stays where it is until the session is destroyed. */
typedef struct gradwire_tensor_parameters {
  size_t struct_size;
  void* parameter;
  void* const* states; /* optimizer state that is averaged with it, such as momentum; the array itself is copied */
  uint32_t state_count;
  uint32_t ndim; /* what policy rules see as ndim; 0: 1 */
} gradwire_tensor_parameters;

/* Options of one tensor. */
typedef struct gradwire_tensor_options {
  size_t struct_size;
  /* Preconditioned encoding: as many floats as the gradient has elements, above 0 and equal on all ranks. Lossy codecs
   * see the gradient divided by them; for Adam use sqrt(v) + 0.02 of its rms. They belong to the caller, stay where
   * they are until the session is destroyed, and keep their values from a step's first ready to its finish. NULL:
   * none. */
  const float* scale;
  uint32_t ndim;     /* what policy rules see as ndim; 0: 1 */
  uint32_t reserved; /* 0 */
} gradwire_tensor_options;

/* The measured links between ranks. Bandwidths are in one direction: of a whole node between nodes, of one rank inside
 * a node. */
typedef struct gradwire_link_estimate {
  size_t struct_size;
  uint64_t ranks_per_node; /* 1: there are no tiers, and each rank counts as a node */
  double inter_latency_seconds;
  double inter_bytes_per_second; /* infinite with one rank */
  double intra_latency_seconds;  /* both 0 without tiers */
  double intra_bytes_per_second;
  double measured_in_seconds; /* what the measurement took */
} gradwire_link_estimate;

/* Advice on the batch by the policy's [batch]; the same on every rank. */
typedef struct gradwire_batch_advice {
  size_t struct_size;
  uint64_t step;               /* the first with this accumulation */
  uint64_t accumulation;       /* micro-steps of a rank to each reduction */
  double learning_rate_factor; /* against a step of one micro-step */
  double exposed_share;        /* of a step: communication that no computation hid */
  double noise_scale;          /* of the gradient, in micro-steps of a rank; below 0: not measured */
} gradwire_batch_advice;

/* The version of the library, such as "0.2.0"; this header may have another one. */
GRADWIRE_API const char* gradwire_version(void);
/* The name of a status, such as "timeout"; "unknown" for a number that is no status. */
GRADWIRE_API const char* gradwire_status_text(gradwire_status status);
/* The message of the last call on this thread that failed; "" before one. Valid until the next failure on this
 * thread. */
GRADWIRE_API const char* gradwire_last_error(void);

/* Reads a policy from a TOML file, or from its text (`source` stands for the file name in messages; NULL: "policy").
 * Errors name line and column. */
GRADWIRE_API gradwire_status gradwire_policy_load(const char* file, gradwire_policy** policy);
GRADWIRE_API gradwire_status gradwire_policy_parse(const char* text, const char* source, gradwire_policy** policy);
GRADWIRE_API void gradwire_policy_destroy(gradwire_policy* policy);

GRADWIRE_API int gradwire_session_rank(const gradwire_session* session);       /* -1 for NULL */
GRADWIRE_API int gradwire_session_world_size(const gradwire_session* session); /* -1 for NULL */
/* Registers `count` elements at `gradient`, which the caller owns and keeps until the session is destroyed; same names,
 * counts, dtypes and order on every rank, before the first ready. `tensor` receives its id and may be NULL; ids count
 * from 0. `name` may be NULL. */
GRADWIRE_API gradwire_status gradwire_session_add(gradwire_session* session, const char* name, void* gradient,
                                                  uint64_t count, gradwire_dtype dtype, uint32_t* tensor);
/* The same with the number of dimensions that policy rules see as ndim; gradwire_session_add() says 1. */
GRADWIRE_API gradwire_status gradwire_session_add_with_ndim(gradwire_session* session, const char* name, void* gradient,
                                                            uint64_t count, gradwire_dtype dtype, uint32_t ndim,
                                                            uint32_t* tensor);
/* The same with options. */
GRADWIRE_API gradwire_status gradwire_session_add_with_options(gradwire_session* session, const char* name,
                                                               void* gradient, uint64_t count, gradwire_dtype dtype,
                                                               const gradwire_tensor_options* options,
                                                               uint32_t* tensor);
/* The same with the arrays that local steps change, so that `every` in policies works. Parameters and states keep their
 * values between a step's first ready and its finish, which alone writes to them. */
GRADWIRE_API gradwire_status gradwire_session_add_with_parameters(gradwire_session* session, const char* name,
                                                                  void* gradient, uint64_t count, gradwire_dtype dtype,
                                                                  const gradwire_tensor_parameters* parameters,
                                                                  uint32_t* tensor);
/* Says that the gradient is complete on this rank. Tensors may come in any order, from any thread. */
GRADWIRE_API gradwire_status gradwire_session_ready(gradwire_session* session, uint32_t tensor);
/* Says that this rank has no gradient for the tensor in this step: it counts as zeros, and receives the result. */
GRADWIRE_API gradwire_status gradwire_session_ready_zero(gradwire_session* session, uint32_t tensor);
/* Like the two functions above, with a ticket that tells when this gradient holds the result. Its struct_size must be
 * set. */
GRADWIRE_API gradwire_status gradwire_session_ready_ticket(gradwire_session* session, uint32_t tensor,
                                                           gradwire_ticket* ticket);
GRADWIRE_API gradwire_status gradwire_session_ready_zero_ticket(gradwire_session* session, uint32_t tensor,
                                                                gradwire_ticket* ticket);
/* Says that the gradient is complete, and lies at `gradient` in this step; count and dtype are as added. `ticket` may
 * be NULL. */
GRADWIRE_API gradwire_status gradwire_session_ready_at(gradwire_session* session, uint32_t tensor, void* gradient,
                                                       uint64_t count, gradwire_dtype dtype, gradwire_ticket* ticket);
/* `done` receives 1 if the ticket's gradient holds the result, otherwise 0. Never blocks. The status is that of the
 * step. GRADWIRE_INVALID_ARGUMENT for a ticket of another session. */
GRADWIRE_API gradwire_status gradwire_session_done(gradwire_session* session, const gradwire_ticket* ticket,
                                                   int32_t* done);
/* Blocks until the ticket is done, and communicates meanwhile. The step still ends with finish.
 * GRADWIRE_INVALID_ARGUMENT for a ticket of another session, where a tensor that must come before is not ready on this
 * rank, and where the tensor's sync mode brings its result with finish. */
GRADWIRE_API gradwire_status gradwire_session_wait(gradwire_session* session, const gradwire_ticket* ticket);
/* GRADWIRE_ON: from here on ready only counts micro-steps, finish is refused, gradients accumulate locally and tickets
 * are done at once. GRADWIRE_OFF (or 0) before the last backward pass of a step. */
GRADWIRE_API gradwire_status gradwire_session_set_no_sync(gradwire_session* session, gradwire_switch no_sync);
/* Returns when every gradient of this step holds the reduced value. `outcome` may be NULL. */
GRADWIRE_API gradwire_status gradwire_session_finish(gradwire_session* session, gradwire_step_outcome* outcome);
/* The ranks whose gradients had NaN or Inf in the step that finish ended last; none unless the step was skipped.
 * `count` receives their number, and `ranks` the ranks, ascending. `ranks` has room for `capacity` of them; the world
 * size is always enough. NULL with capacity 0 asks for the number only. To be called on the thread that calls
 * finish. */
GRADWIRE_API gradwire_status gradwire_session_nonfinite_ranks(const gradwire_session* session, int* ranks,
                                                              uint64_t capacity, uint64_t* count);
/* Synchronises parameters under local steps now, exactly, so that all ranks hold the same: before the model is
 * evaluated or saved at the end. On every rank, between steps, after the optimizer. Blocks. A second call does
 * nothing. */
GRADWIRE_API gradwire_status gradwire_session_sync_parameters(gradwire_session* session);
/* Sends rank `root`'s values to every rank, exactly; between steps. */
GRADWIRE_API gradwire_status gradwire_session_broadcast(gradwire_session* session, void* values, uint64_t count,
                                                        gradwire_dtype dtype, int root);
/* Sets this rank's sample count for the coming step; on every rank or on none. */
GRADWIRE_API gradwire_status gradwire_session_set_weight(gradwire_session* session, double samples);
/* Sets the factor by which gradients are too large from the coming step on; the same on every rank, between steps. */
GRADWIRE_API gradwire_status gradwire_session_set_loss_scale(gradwire_session* session, double scale);
/* Makes the next step exact: it carries all residuals of error feedback. On every rank, between steps. */
GRADWIRE_API gradwire_status gradwire_session_flush(gradwire_session* session);
/* Writes and reads the state between two steps, one file a rank below `directory`. */
GRADWIRE_API gradwire_status gradwire_session_save(gradwire_session* session, const char* directory);
GRADWIRE_API gradwire_status gradwire_session_load(gradwire_session* session, const char* directory);
/* Agrees on the plan with all ranks now instead of in the first step: on every rank, after every add, between steps.
 * Blocks. GRADWIRE_MISMATCH names what differs. */
GRADWIRE_API gradwire_status gradwire_session_reserve(gradwire_session* session);
/* The number of steps that have ended, with those before a loaded state was saved. */
GRADWIRE_API gradwire_status gradwire_session_step(const gradwire_session* session, uint64_t* step);
/* Bytes of memory that error feedback holds on this rank. */
GRADWIRE_API gradwire_status gradwire_session_residual_bytes(gradwire_session* session, uint64_t* bytes);
/* The links as measured last where the policy chooses codecs. Otherwise it measures now, in well under a second; call
 * it on every rank then, between steps. Blocks. */
GRADWIRE_API gradwire_status gradwire_session_link(gradwire_session* session, gradwire_link_estimate* link);
/* The advice of the policy's [batch]; it changes only inside finish. GRADWIRE_INVALID_ARGUMENT where the policy has no
 * [batch]. */
GRADWIRE_API gradwire_status gradwire_session_batch_advice(const gradwire_session* session,
                                                           gradwire_batch_advice* advice);
/* The totals of all steps since the session was made, or since the reset. */
GRADWIRE_API gradwire_status gradwire_session_statistics(const gradwire_session* session,
                                                         gradwire_statistics* statistics);
GRADWIRE_API gradwire_status gradwire_session_reset_statistics(gradwire_session* session);
/* Notes a number of the job for those who watch it, such as its loss after each step: metrics show the latest of each
 * name as gradwire_note{name="loss"}, and histories keep it over time. GRADWIRE_INVALID_ARGUMENT where the name is not
 * 1 to 40 letters, digits, '_', '.' and '-', or is the 17th of the session. */
GRADWIRE_API gradwire_status gradwire_session_note(gradwire_session* session, const char* name, double value);

/* Texts go to `buffer`, which has room for `size` bytes, and end in a zero there. `length` receives the number of bytes
 * before that zero, and may be NULL. `buffer` NULL with size 0 asks for the length only. GRADWIRE_INVALID_ARGUMENT
 * where the text does not fit; `length` then says what it needs, and the buffer holds "". */

/* A table for people: what every tensor resolved to, and why. Every add must come before. */
GRADWIRE_API gradwire_status gradwire_session_explain(gradwire_session* session, char* buffer, uint64_t size,
                                                      uint64_t* length);
/* 16 hex digits over policy, tensors, buckets and wire version. Every add must come before. */
GRADWIRE_API gradwire_status gradwire_session_fingerprint(gradwire_session* session, char* buffer, uint64_t size,
                                                          uint64_t* length);
/* All statistics, by group, of this rank: one JSON object, and a table for people. */
GRADWIRE_API gradwire_status gradwire_session_statistics_json(const gradwire_session* session, char* buffer,
                                                              uint64_t size, uint64_t* length);
GRADWIRE_API gradwire_status gradwire_session_statistics_text(const gradwire_session* session, char* buffer,
                                                              uint64_t size, uint64_t* length);

/* Gives up on every rank for the reason `why`; later calls return GRADWIRE_ABORTED and quote it. */
GRADWIRE_API gradwire_status gradwire_session_abort(gradwire_session* session, const char* why);
/* Frees the session; a step still under way is aborted on every rank. Must come before MPI_Finalize. */
GRADWIRE_API void gradwire_session_destroy(gradwire_session* session);

GRADWIRE_API int gradwire_communicator_rank(const gradwire_communicator* communicator);       /* -1 for NULL */
GRADWIRE_API int gradwire_communicator_world_size(const gradwire_communicator* communicator); /* -1 for NULL */
/* A collective that fails ends the communicator on every rank, except for errors before it begins: a NULL handle or
 * counts, a number that is no enumerator, a codec of an unknown name. The other ranks then wait for this rank. */

/* Reduces `count` elements over all ranks from `input` into `output`, which may be the same memory. `options` NULL:
 * int8 sum. `statistics` may be NULL. */
GRADWIRE_API gradwire_status gradwire_all_reduce(gradwire_communicator* communicator, const void* input, void* output,
                                                 uint64_t count, gradwire_dtype dtype,
                                                 const gradwire_call_options* options, gradwire_statistics* statistics);
/* Reduces `input` and leaves segment r with rank r: `counts` holds one number of elements for each rank, the same on
 * every rank, 0 allowed. `input` holds their sum of elements, segment after segment; `output` has room for counts[rank]
 * and may be this rank's segment of `input`, but must not overlap it otherwise. The result is not encoded a second
 * time. `options` NULL: int8 sum. `statistics` may be NULL. */
GRADWIRE_API gradwire_status gradwire_reduce_scatter(gradwire_communicator* communicator, const void* input,
                                                     void* output, const uint64_t* counts, gradwire_dtype dtype,
                                                     const gradwire_call_options* options,
                                                     gradwire_statistics* statistics);
/* Rank r contributes counts[r] elements at `input`; all ranks receive all elements in `output`, in rank order. `input`
 * may be this rank's segment of `output`, but must not overlap it otherwise. With a lossy codec every rank, the
 * contributor too, decodes the same bytes; use the codec "exact" for parameters. `options` NULL: int8; its reduction
 * has no effect. */
GRADWIRE_API gradwire_status gradwire_all_gather(gradwire_communicator* communicator, const void* input, void* output,
                                                 const uint64_t* counts, gradwire_dtype dtype,
                                                 const gradwire_call_options* options, gradwire_statistics* statistics);
/* Sends rank `root`'s values to every rank; `options` NULL: exact. */
GRADWIRE_API gradwire_status gradwire_broadcast(gradwire_communicator* communicator, void* values, uint64_t count,
                                                gradwire_dtype dtype, int root, const gradwire_call_options* options,
                                                gradwire_statistics* statistics);
/* Returns once every rank has called it. */
GRADWIRE_API gradwire_status gradwire_barrier(gradwire_communicator* communicator);
/* "2 nodes of 2 ranks"; where a hierarchical all-reduce would be made as a two_shot one, also why. The text is written
 * as those of sessions are. */
GRADWIRE_API gradwire_status gradwire_communicator_tiers(const gradwire_communicator* communicator, char* buffer,
                                                         uint64_t size, uint64_t* length);
/* Frees the communicator. Must come before MPI_Finalize. */
GRADWIRE_API void gradwire_communicator_destroy(gradwire_communicator* communicator);

/* Makes a buffer for the residuals of lossy calls: each call keeps in it what it dropped, and the next one adds that.
 * Every array that is reduced again and again needs one of its own. `count` is the number of elements of the call's
 * larger array (input of a reduce_scatter, output of an all_gather). It must outlive the calls that name it. */
GRADWIRE_API gradwire_status gradwire_feedback_create(uint64_t count, gradwire_feedback** feedback);
GRADWIRE_API void gradwire_feedback_destroy(gradwire_feedback* feedback);

/* NOLINTEND(modernize-*) */
#ifdef __cplusplus
}
#endif

#endif
