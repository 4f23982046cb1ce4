// The session, the object that a training loop holds: tensors are added once; each step their gradients become ready in
// any order and are reduced in the background, bucket by bucket, while the backward pass goes on.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/communicator.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/processes.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/step.hpp"
#include "gradwire/table.hpp"
#include "gradwire/threading.hpp"
#include "gradwire/transport.hpp"

namespace gradwire {

class Session;
struct SessionOptions;

namespace session {
struct Access;  // makes sessions over other memory, over Processes and with other parts
}

struct SessionOptions {
  Reduction reduction = Reduction::mean;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // for any single wait; above 0, ten years at most
  std::optional<bool> checksum = {};                           // default: as the transport says
  Threading threading = Threading::background;
  Nonfinite nonfinite = Nonfinite::automatic;
  bool measure_error = false;  // also reduce exactly, to report relative error; doubles the traffic, off by default
  std::uint64_t compare_ranks_every =
      0;  // debug: hash results across ranks every N steps, fail on a difference; 0: never
};

/// Options of one tensor.
struct TensorOptions {
  std::uint32_t ndim = 1;  // number of dimensions, for policy rules
  /// Preconditioned encoding: a diagonal s of the gradient's count, above 0, that all ranks hold alike, such as sqrt(v)
  /// + phi x its rms of Adam (gradwire/optimizer.hpp). Lossy codecs then see gradient / s: top-k selects what moves the
  /// parameter, not what is large; results and residuals are in units of the gradient. Its elements count by the
  /// nearest power of two, relative to the largest of their tile of 4096. One that is not positive and finite, or below
  /// 2^-16 of that largest, counts as 2^-16 of it; a constant s changes nothing. Exact codecs ignore it.
  /// Not owned: it must stay where it is, and keep its values from a step's first ready() to the end of its finish().
  /// Ranks compare hashes of it in the first two steps and every 64: a difference is Error(mismatch), which names the
  /// tensor, in the finish() after that step. Over device memory it is memory of that device, it keeps its values in
  /// the order of the session's stream, and the comparison is in finish() itself, which then waits.
  std::span<const float> scale = {};
  /// What local steps change (sync = { every = N, ... } in policies): the parameter, of the gradient's count and dtype.
  /// Not owned: it must stay where it is, and keep its values between a step's first ready() and its finish(), which
  /// alone writes to it.
  std::optional<View> parameter = {};
  /// Optimizer state that is averaged with the parameter, such as momentum; everything said of `parameter` holds for
  /// it.
  std::vector<View> state = {};
};

class Session {
 public:
  Session(std::shared_ptr<Transport> transport, Policy policy, SessionOptions options = {});
  /// A session that goes on without ranks that end, as docs/explanation/elastic.md says: finish() then returns
  /// world_changed and repeat. All sync modes work. A rank that throws an error of its own leaves; the others go on.
  /// While a call communicates no other thread may call the session. Error(invalid_argument) where another session has
  /// used `processes`.
  Session(std::shared_ptr<Processes> processes, Policy policy, SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  /// Joins the progress thread. A step still under way is aborted on every rank.
  ~Session();

  /// This process's rank; -1 while it waits to become one.
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world_size() const noexcept;

  /// Registers a gradient; same names, counts, dtypes and order on every rank. The memory must stay valid until the
  /// session ends or ready(id, view) replaces it, so declare gradients before the session; builds with AddressSanitizer
  /// say where that is not so. Only before the first ready(). Error(invalid_argument) that names both where it overlaps
  /// memory of another tensor (tied weights are added once). Error(unsupported) where the policy asks for rows of it
  /// (sync = { rows = true, ... }): make a table of it instead. Error(invalid_argument) for a parameter or state of
  /// another count or dtype, for state without a parameter, and for a scale that is not in the memory that the session
  /// works on. Error(unsupported), in the first ready(), for a scale under sync modes.
  TensorId add(std::string_view name, View gradient, const TensorOptions& options = {});

  /// Short for add(name, gradient, {.ndim = ndim}).
  TensorId add(std::string_view name, View gradient, std::uint32_t ndim) {
    return add(name, gradient, TensorOptions{.ndim = ndim});
  }

  /// Short for add(name, gradient, {.ndim = ndim, .parameter = parameter, .state = state}).
  TensorId add(std::string_view name, View gradient, View parameter, std::vector<View> state = {},
               std::uint32_t ndim = 1) {
    return add(name, gradient, TensorOptions{.ndim = ndim, .parameter = parameter, .state = std::move(state)});
  }

  /// Sends rank `root`'s values to every rank, exactly. To be called between steps only.
  void broadcast(std::span<const View> values, int root = 0);
  void broadcast(View value, int root = 0) { broadcast(std::span<const View>(&value, 1), root); }

  /// Copies rank 0's `parameters` to all ranks: parameters, optimizer state, and whatever else steps then change alike
  /// on every rank. On every rank, after every add(), before the first ready(); instead of broadcast(). Blocks. A
  /// process that is no rank yet waits here: a spare ([elastic] spares) for a rank to end, a process that joins
  /// (Processes) for the end of a step. It then receives what the ranks hold: their `parameters`, whose memory must
  /// stay where it is, the step, loss scale and a wanted flush, also parameters and state that were added. Between
  /// synchronisations of local steps, ranks differ in these: it receives those of the lowest rank, and under outer
  /// momentum parameters as they were last synchronised (docs/explanation/elastic-sync-modes.md). Returns false where
  /// the process waited until the job ended: it must make no steps. Until a waiting process is a rank, its calls that
  /// would communicate or load do nothing, its rank() is -1, and its step() is 0. Once other processes may join, ranks
  /// may only communicate in steps, pull() and sync_parameters(), and with late results (sync = { async = true, ... })
  /// in save(), checkpoint() and set_loss_scale(): broadcast(), reserve(), restore(), load(), link() are
  /// Error(invalid_argument). Error(mismatch) on a process whose version, policy, tensors, tables or parameters differ
  /// from those of the ranks, which go on without it.
  [[nodiscard]] bool share(std::span<const View> parameters);
  [[nodiscard]] bool share(View parameter) { return share(std::span<const View>(&parameter, 1)); }

  /// Says that the gradient is complete. Its bucket starts once all its tensors are ready and all earlier buckets have
  /// started. Buckets form in reverse order of add(). Any thread. Twice in one step is Error(invalid_argument).
  /// The ticket tells when this gradient holds the result; most callers wait for all in finish() instead.
  Ticket ready(TensorId id);
  /// The same with the gradient at another address in this step; count and dtype as added.
  Ticket ready(TensorId id, View gradient);
  /// Says that this rank has no gradient for the tensor in this step: it counts as zeros, and receives the result.
  Ticket ready_zero(TensorId id);

  /// Whether the gradient behind the ticket holds the reduced value. Never blocks. Throws the step's Error if there is
  /// one.
  [[nodiscard]] bool done(const Ticket& ticket);
  /// Blocks until done(ticket), and communicates meanwhile. Error(invalid_argument) while a tensor that must come
  /// before is not ready on this rank: of all tensors in steps in which ranks look for NaN first (Nonfinite::skip,
  /// flush(), the step before local steps begin); and where the tensor's sync mode brings its result with finish().
  void wait(const Ticket& ticket);

  /// Blocks until every gradient of this step holds the reduced value. Over device memory it only enqueues the
  /// reduction, except over Processes, where it waits for the device too; no timeout covers a caller who then waits for
  /// the stream itself (docs/how-to/gpu.md). Error(invalid_argument) names tensors that were not ready on this rank
  /// (and aborts the others).
  StepOutcome finish();

  /// Returns once the last step counts for the job, whichever processes end from here on: enough ranks have said that
  /// they hold it that every later world includes it. Call it between steps before results leave the job, such as
  /// before a model is written; checkpoint() calls it, and so does the end of a session that has made steps. It blocks
  /// for a message there and back. Without Processes it does nothing, since such a job ends as a whole. Error(expelled)
  /// where the others went on without this rank, Error(timeout) where too few answer: the session is over then. When it
  /// throws the step may count or not; when it returns, the step counts.
  void confirm();

  /// Synchronises parameters under local steps (sync = { every = N, ... }) now, exactly, so that all ranks hold the
  /// same: before the model is evaluated or saved at the end. On every rank, between steps, after the optimizer.
  /// Blocks. Under outer momentum this call is a step of the outer optimizer, so training goes on from it differently
  /// than without the call. Parameters that no local step has moved since the last synchronisation stay as they are, so
  /// a second call does nothing.
  void sync_parameters();

  // Embedding tables whose rows count with the steps of this session, and survive the end of ranks
  // (docs/explanation/tables.md). Calls come from the thread that makes steps.

  /// Registers a table; same options and order on every rank, before the first step and share(). Rows are on `copies`
  /// ranks each. Error(invalid_argument) for options that make no sense. Error(unsupported) over device memory, and for
  /// codecs other than exact, bf16 and int8. Options that differ are Error(mismatch) on every rank in the first pull()
  /// or step, which names rank and option.
  TableId add_table(const SessionTableOptions& options);
  /// The old overload. Error(invalid_argument) for what is for a Table alone: staleness, cache_bytes, read_own_writes;
  /// `timeout` and `threading` have no effect here. (It is a template so that braces mean SessionTableOptions.)
  template <std::same_as<TableOptions> Options>
  [[deprecated("use SessionTableOptions, in which nothing can be asked for that a session's table has not")]] TableId
  add_table(const Options& options) {
    return add_table_as_before(options);
  }
  /// Copies row ids[i] to rows[i * width], with the pushes of all steps that counted. Any order, duplicates, none. On
  /// every rank, between steps, for the same table; blocks. Returns false, over Processes only, when the world has
  /// changed: `rows` are undefined, and the step begins anew with all its pulls. Error(invalid_argument), which harms
  /// nobody, for an id outside the table, a span of another size or a step that is under way.
  [[nodiscard]] bool pull(TableId table, std::span<const std::uint64_t> ids, std::span<float> rows);
  /// Keeps gradients[i * width] of row ids[i], with those of duplicates added up, until finish() sends them to all
  /// ranks that hold the row. When the step counts each row is changed once, by the sum over the ranks or their mean,
  /// as SessionOptions::reduction and set_weight() say; a rank that pushes nothing to a row counts as zeros. Where the
  /// step is skipped or made again its pushes are forgotten. Gradients have no loss scale. Does not communicate.
  /// Error(invalid_argument) as in pull(), and for NaN or Inf, also once gradient_codec has rounded it; nothing of the
  /// call is kept then.
  void push(TableId table, std::span<const std::uint64_t> ids, std::span<const float> gradients);
  /// Counts since the session was made. rows_held counts the rows of which this rank has a copy; `traffic` holds bytes
  /// of pulls and pushes. Members about ages and caches stay 0.
  [[nodiscard]] TableStatistics table_statistics(TableId table) const;

  /// Sets a callback that runs inside the call that changes the world, before that call returns; it runs at once where
  /// ranks ended before the session's first world was made. Error(invalid_argument) where the session is not over
  /// Processes: its world never changes.
  void on_world_change(std::function<void(const WorldChange&)> callback);

  /// While true, ready() only counts micro-steps and finish() is not called: gradients accumulate locally.
  void set_no_sync(bool no_sync);
  /// Scope of set_no_sync(true).
  class NoSync {
   public:
    explicit NoSync(Session& session) : session_(session) { session_.set_no_sync(true); }
    ~NoSync() { session_.set_no_sync(false); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Session& session_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Sets this rank's weight (sample count) for the coming step, before its first ready(). Once set, every step is
  /// weighted; every rank sets it or none does. Error feedback carries residuals into later means at their right weight
  /// only while the sum of weights over the ranks is the same from step to step (docs/explanation/numerics.md).
  void set_weight(double samples);

  /// Sets the factor by which this step's gradients (and all later ones) are too large, as a loss scaler sets it; the
  /// same on every rank, finite and above 0, between steps. Results keep that factor. Residuals are rescaled when it
  /// changes. From the first call on steps with NaN or Inf are skipped, unless options say otherwise. With late
  /// results, where processes may join, call it after all changes of shared memory and before save() and checkpoint()
  /// (docs/explanation/elastic-sync-modes.md). Error(unsupported) under outer momentum, whose residuals are of
  /// parameters: unscale gradients before the optimizer.
  void set_loss_scale(double scale);

  /// Makes the next step exact: it carries all residuals, none of which is left afterwards. On every rank, between
  /// steps. A step with NaN or Inf is skipped, and the one after it flushes. After a flush nothing in a saved state
  /// depends on the world size.
  void flush();
  /// Bytes of the residuals that error feedback holds on this rank.
  [[nodiscard]] std::uint64_t residual_bytes();

  /// Saves this rank's state between two steps: residuals, step, loss scale, what they belong to, and rows of tables of
  /// which this rank has the first copy. It goes to the file `directory`/rank-R-of-N.gradwire (mode 0600), written
  /// under another name first. The directory is created where it is missing. The file of the save before stays beside
  /// it, as rank-R-of-N.gradwire.previous, until the next save: load() falls back on it where a save was cut off
  /// between two ranks. Error(invalid_argument) names what cannot be written. Where gradients are reduced in the
  /// background save() waits for them, so every rank saves after the same step.
  void save(const std::filesystem::path& directory);
  void save(std::ostream& stream);
  /// Loads a saved state, after every add(), before the first ready(), on every rank. From a directory that a world of
  /// another size saved, residuals are distributed anew: their sums over ranks (for a mean: averages) stay, and owner
  /// residuals go to the new owner of their coordinate. All files must be there then; otherwise this rank's is enough.
  /// A stream must be this rank's, of a world of this size. With tables the files of all ranks must be there in any
  /// case, and a stream is Error(unsupported). Error(corrupt) for a truncated or damaged file, Error(mismatch) for one
  /// of another model; the session is then as before.
  void load(const std::filesystem::path& directory);
  void load(std::istream& stream);

  /// Makes a checkpoint of the job after this step: on every rank, between steps. All ranks must see `directory`. Each
  /// rank writes its state there, rank 0 also `parameters`, which are in host memory and the same on every rank, bit
  /// for bit (under local steps: after sync_parameters()). The call copies both and returns; a thread of the session
  /// writes them, one checkpoint at a time. The log tells what cannot be written, and training goes on. The newest
  /// `keep` complete checkpoints stay, beside the one being written. Error(invalid_argument) where the directory holds
  /// checkpoints of later steps that restore() has not seen, Error(unsupported) over device memory.
  void checkpoint(const std::filesystem::path& directory, std::span<const ConstView> parameters, int keep = 3);
  /// Blocks until the checkpoint that checkpoint() began is on the disk; throws the error that prevented it.
  void wait_for_checkpoint();
  /// Restores the newest checkpoint that is complete and that all ranks can read, also where another number of ranks
  /// wrote it, as load() does: loads states, fills `parameters` on every rank, and returns the step; 0 where there is
  /// none. After every add(), before the first ready(), on every rank; blocks. The log names each newer checkpoint that
  /// was passed over; it is renamed to NAME.unusable. Error(mismatch) where the newest is of another model,
  /// Error(invalid_argument) where a rank cannot read what is there: nothing has changed then. Error(unsupported) over
  /// device memory. A directory belongs to one job.
  std::uint64_t restore(const std::filesystem::path& directory, std::span<const View> parameters);

  /// Agrees on the plan with all ranks, as the first step would, and, over device memory, takes the memory that steps
  /// need; on every rank, after every add(), between steps. Blocks. A step over device memory can be captured into a
  /// graph only after it; such a graph must be destroyed before the session is, or is aborted (docs/how-to/gpu.md).
  void reserve();

  /// The links between ranks. Where the policy chooses codecs it returns the last measurement, from the first step on.
  /// Otherwise it measures now, in well under a second; call it on every rank then, between steps. Blocks.
  /// Error(unsupported) over device memory.
  [[nodiscard]] LinkEstimate link();
  /// Where the policy has [batch]: how many micro-steps to accumulate before each reduction, all but the last under
  /// no_sync(), and how the learning rate follows. The advice keeps exposed communication at its target, and changes
  /// only inside finish(), alike on every rank. Gradients should be the mean over a rank's micro-steps. Over NCCL
  /// nothing is measured, and the advice stays what it is at the start. Error(invalid_argument) without [batch].
  [[nodiscard]] BatchAdvice batch_advice() const;
  /// Records this rank's gradients of the next `steps` steps (1 to 512), as ready() gets them, before they are reduced:
  /// `directory`/step-K/NAME.npy, and index.json with their names, for `gradwire ratio` and `gradwire plan --from`
  /// (docs/how-to/own-gradients.md). Between steps, on any rank; the other ranks need not know. ready() then writes the
  /// file before it returns. The log tells what cannot be written; the recording ends then, and training goes on.
  /// ready_zero() records nothing. Error(invalid_argument) where the directory cannot be written, or holds an earlier
  /// recording. Error(unsupported) for gradients in device memory.
  void record_gradients(const std::filesystem::path& directory, std::uint64_t steps);
  /// A table for people: what every tensor resolved to, and why. Any rank may call it alone. Tensors can no longer be
  /// added afterwards.
  [[nodiscard]] std::string explain();
  /// 16 hex digits over policy, tensors, buckets, wire version; equal on all ranks or the first step fails.
  [[nodiscard]] std::string fingerprint();
  [[nodiscard]] std::uint64_t step() const noexcept;
  [[nodiscard]] SessionStatistics statistics() const;
  void reset_statistics();
  /// Notes a number of the job for those who watch it, such as note("loss", x) after each step; it travels nowhere.
  /// Metrics show the latest of each name, as gradwire_note{name="loss"}, and histories keep it over time, by which
  /// `gradwire report` compares two runs. Between steps, on any rank. Error(invalid_argument) where the name is not 1
  /// to 40 letters, digits, '_', '.' and '-', or is the 17th of the session.
  void note(std::string_view name, double value);

  /// Gives up on every rank; later calls throw Error(aborted).
  void abort(const std::string& why) noexcept;

 private:
  friend struct session::Access;
  struct State;
  TableId add_table_as_before(const TableOptions& options);
  explicit Session(std::unique_ptr<State> state);
  std::optional<std::uint64_t> restore_in_world(const std::filesystem::path& directory,
                                                std::span<const View> parameters);
  std::unique_ptr<State> state_;
};

}  // namespace gradwire
