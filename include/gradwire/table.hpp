// Embedding tables whose rows are shared out over the ranks of a job. Only rows that are asked for travel.
//
// Rows belong to ranks by consistent hashing with virtual nodes (Karger et al., STOC 1997): a world of one rank more
// moves about 1/N of them. Their owner applies gradients as they arrive. Reads are stale synchronous parallel (Ho et
// al., NIPS 2013): each rank counts its steps by tick(), and a read at clock c misses no update that any rank made
// before clock c - staleness.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/codec_spec.hpp"
#include "gradwire/error.hpp"
#include "gradwire/threading.hpp"
#include "gradwire/transport.hpp"

namespace gradwire {

class Policy;

namespace table {

class Shard;

/// The type of TableOptions::copies, which stays from when one struct served tables of both kinds. Setting it warns.
class DeprecatedCopies {
 public:
  constexpr DeprecatedCopies() noexcept = default;
  // NOLINTBEGIN(google-explicit-constructor): it was a number
  [[deprecated("copies are for SessionTableOptions: a Table has one copy of each row")]] constexpr DeprecatedCopies(
      std::uint32_t copies) noexcept
      : copies_(copies) {}
  constexpr operator std::uint32_t() const noexcept { return copies_; }
  // NOLINTEND(google-explicit-constructor)

 private:
  std::uint32_t copies_ = 0;
};

}  // namespace table

/// How an owner applies a gradient g to a row v.
enum class RowOptimizer : std::uint8_t {
  sgd,      // v -= rate g
  adagrad,  // a += g^2, v -= rate g / (sqrt(a) + epsilon), by element (Duchi et al., JMLR 2011)
};

/// Options for Session::add_table(). The table belongs to the session, and an update of a row counts when the session's
/// step does. Every rank must pass the same options. Members that TableOptions has as well mean the same there.
struct SessionTableOptions {
  std::string name = "table";
  std::uint64_t rows = 0;
  std::uint32_t width = 0;
  RowOptimizer optimizer = RowOptimizer::sgd;
  float learning_rate = 0.01F;
  float epsilon = 1e-10F;
  float initial_scale = 0;
  std::uint64_t seed = 0;
  CodecSpec codec = CodecSpec::exact();
  CodecSpec gradient_codec = CodecSpec::exact();
  /// How many ranks hold a copy of each row, so that rows survive when ranks end. 0 stands for 2 in a session over
  /// Processes, and for 1 otherwise.
  std::uint32_t copies = 0;
  std::string store = {};    // may differ between ranks, and so may `memory`
  std::uint64_t memory = 0;  // bytes
};

/// Options for gradwire::Table. Every rank must pass the same ones, except for cache_bytes, store, memory, timeout,
/// threading and save_packed.
struct TableOptions {
  /// With this staleness a rank never waits for others' clocks, and never uses a cached row without asking its owner.
  static constexpr std::uint64_t kUnbounded = ~std::uint64_t{0};

  std::string name = "table";  // in messages and file names: letters, digits, '.', '_', '-'
  std::uint64_t rows = 0;      // ids are 0 .. rows - 1
  std::uint32_t width = 0;     // elements of a row

  RowOptimizer optimizer = RowOptimizer::sgd;
  float learning_rate = 0.01F;
  float epsilon = 1e-10F;   // for adagrad
  float initial_scale = 0;  // rows begin as uniform in [-initial_scale, initial_scale), a function of seed and id
  std::uint64_t seed = 0;

  CodecSpec codec = CodecSpec::exact();           // of row values on the wire: exact, bf16, int8 (one scale a row)
  CodecSpec gradient_codec = CodecSpec::exact();  // the same for gradients, without error feedback
  std::uint64_t staleness = 0;                    // in clocks, or kUnbounded
  /// A rank sees its own pushes in its next pull. False: a cached row serves until it is older than `staleness`, though
  /// this rank pushed to it since: rows that every step uses then travel once in staleness + 1 steps.
  bool read_own_writes = true;
  std::uint64_t cache_bytes = 0;  // memory for rows of other ranks; the least recently used leave first; 0: no cache
  table::DeprecatedCopies copies = {};  // goes away: SessionTableOptions::copies
  /// "file:DIR": rows that do not fit into `memory` lie in a scratch file without a name in the directory DIR, which
  /// must exist. Empty: all rows lie in memory.
  std::string store = {};
  /// With a store: the most bytes of host memory for this rank's rows, with their index and all buffers. A row that was
  /// ever written takes 10 to 15 bytes of it at all times.
  std::uint64_t memory = 0;

  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // for any single wait; above 0, ten years at most
  Threading threading = Threading::background;
  bool save_packed = false;  // save() packs rows by libzstd, bit by bit the same
};

/// Returns `base` with the options of the first matching rule of the policy: staleness, gradient_codec (the rule's
/// codec), codec (its second_hop, or its codec too), store and memory if it names them, and with the policy's
/// save_packed. All else is base's. Rules
/// see the name, rows x width elements of f32 and ndim 2. Error(invalid_argument) that names the tensor where no rule
/// asks for rows of it; Error(unsupported) where the rule wants what tables cannot do: another codec than exact, bf16
/// or int8, codec "auto", warmup, error feedback, decay.
[[nodiscard]] TableOptions table_options(const Policy& policy, std::string_view tensor_name, TableOptions base = {});

/// The same for a table of a session; the rule must have staleness 0, else Error(invalid_argument).
[[nodiscard]] SessionTableOptions session_table_options(const Policy& policy, std::string_view tensor_name,
                                                        SessionTableOptions base = {});

/// Counts of this rank since the table was made. Rows are counted after duplicates were merged.
struct TableStatistics {
  std::uint64_t rows_pulled = 0;
  std::uint64_t rows_own = 0;        // of these: this rank's own, never sent
  std::uint64_t rows_cached = 0;     // of these: recent enough in the cache, so nothing was sent
  std::uint64_t rows_unchanged = 0;  // of these: only the ids were sent, since the values had not changed
  std::uint64_t rows_received = 0;
  std::uint64_t rows_pushed = 0;
  std::uint64_t maximum_age = 0;  // age in clocks of the oldest row that a pull returned: it may miss so many updates
  double mean_age = 0;
  double wait_seconds = 0;      // inside pull()
  std::uint64_t rows_held = 0;  // rows of this rank's shard that ever changed
  /// The rows of rows_held that now have NaN or Inf in values or optimizer state: finite gradients added up to more
  /// than a float holds. Pushes do not repair them; assign() repairs values, load() repairs all.
  std::uint64_t rows_nonfinite = 0;
  std::uint64_t cache_bytes = 0;  // in use
  TransportCounters traffic;
  /// A table without a store keeps all rows in memory, and counts only `rows_in_memory`.
  struct Store {
    std::uint64_t rows_in_memory = 0;
    std::uint64_t rows_in_file = 0;  // those that are not in memory
    std::uint64_t hits = 0;          // rows that were asked for or written to, and lay in memory
    std::uint64_t reads = 0;         // the others, which came from the file
    std::uint64_t memory_bytes = 0;  // rows, index and buffers
    std::uint64_t file_bytes = 0;
    std::uint64_t bytes_read = 0;  // of the present file, which a load replaces; with what lies between the rows
    std::uint64_t bytes_written = 0;
  };
  Store store = {};
};

/// One rank's part of a consistent view of a table: pushes that came later do not show. Any thread; may outlive its
/// table. Rows that nobody ever changed are not in it.
class TableSnapshot {
 public:
  [[nodiscard]] std::uint64_t rows() const noexcept;
  /// The row's values; empty where this rank's part has no such row.
  [[nodiscard]] std::span<const float> find(std::uint64_t id) const;
  /// Visits the rows by ascending id.
  void for_each(const std::function<void(std::uint64_t id, std::span<const float> values)>& visit) const;

 private:
  friend class Table;
  explicit TableSnapshot(std::shared_ptr<const table::Shard> shard) : shard_(std::move(shard)) {}
  std::shared_ptr<const table::Shard> shard_;
};

/// One rank's end of the table. Calls may come from any thread (Threading::main_thread: only from the one that made
/// it). Where no thread of the table serves other ranks (Threading, TransportCapabilities::any_thread), calls serve
/// them, so call progress() during long computations.
/// Errors: wrong arguments of this rank (invalid_argument) harm nobody and change nothing. Any other error ends the
/// table on every rank: later calls throw it, and on other ranks they throw Error(aborted) that names its origin.
class Table {
 public:
  /// Collective. `transport` belongs to the table alone from here on. Error(mismatch) where options differ between
  /// ranks. A rank that cannot make its part throws its reason, and all others throw Error(aborted) that quotes it:
  /// Error(invalid_argument) for options that make no sense, Error(unsupported) for codecs other than exact, bf16 and
  /// int8, Error(out_of_memory) for more cache_bytes than this machine has.
  Table(std::shared_ptr<Transport> transport, TableOptions options);
  Table(Table&&) noexcept;
  Table& operator=(Table&&) noexcept;
  /// Serves other ranks until every rank has come here (within the timeout). While an exception is thrown it aborts.
  ~Table();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world_size() const noexcept;
  [[nodiscard]] const TableOptions& options() const noexcept;
  /// The rank that holds the row.
  [[nodiscard]] int owner(std::uint64_t id) const;

  /// Copies row ids[i] to rows[i * width]. Ids may be in any order, repeated or none. Blocks until rows are recent
  /// enough. Error(invalid_argument) for an id outside the table or a span of another size; Error(timeout) names the
  /// ranks that it waited for.
  void pull(std::span<const std::uint64_t> ids, std::span<float> rows);
  /// Sends gradients[i * width] for row ids[i] to its owner, with those of duplicates added up, and does not wait for
  /// it. Error(invalid_argument) for NaN or Inf, and in rows of other ranks for what gradient_codec rounds to that
  /// (bf16: above 3.39e38); it names the id, and nothing was sent then. Sums at the owner may still overflow, which
  /// rows_nonfinite shows.
  void push(std::span<const std::uint64_t> ids, std::span<const float> gradients);
  /// Replaces rows; of duplicates the last one counts. Optimizer state stays. The rest is as for push().
  void assign(std::span<const std::uint64_t> ids, std::span<const float> values);
  /// Requests rows that a later pull() will want; they go to the cache. Error(invalid_argument) without one. With a
  /// store, the ranks that hold the rows bring them to memory, and this rank's own need no cache.
  void prefetch(std::span<const std::uint64_t> ids);

  /// Ends this rank's step: later pushes belong to the next clock.
  void tick();
  [[nodiscard]] std::uint64_t clock() const;
  /// Serves other ranks; see above.
  void progress();

  /// Collective: every later pull includes all pushes that any rank made before this call.
  void synchronize();
  /// Takes a snapshot with the pushes that each rank made before its call, and no later ones. Collective; each rank may
  /// call it at any place in its program, and pushes may go on. Pages of rows are copied when they are written to (copy
  /// on write).
  [[nodiscard]] TableSnapshot snapshot();
  /// Collective: writes a snapshot, `directory`/NAME-rank-R-of-N.gwtable on each rank (docs/explanation/tables.md),
  /// mode 0600. Returns when all files are written. If any rank cannot write its own, all ranks throw, the earlier
  /// files are as they were, and the table goes on. The previous file stays as NAME-rank-R-of-N.gwtable.previous until
  /// the next save.
  void save(const std::filesystem::path& directory);
  /// Collective: replaces all rows by those that a world of any size saved; clocks go on. Error(corrupt) for a damaged
  /// file, Error(mismatch) for files of another table or of different saves; all ranks throw then, and the table is as
  /// before on every rank.
  void load(const std::filesystem::path& directory);

  [[nodiscard]] TableStatistics statistics() const;
  /// Gives up on every rank.
  void abort(const std::string& why) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradwire
