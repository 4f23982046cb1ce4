// One rank's part of a table: its shard, its clock, its cache, its requests to others and its answers. It is a state
// machine without threads, locks or transport: messages go in by take() and come out by take_outbox().
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/current_error.hpp"
#include "gradwire/table.hpp"
#include "table/floats.hpp"
#include "table/rank_clocks.hpp"
#include "table/row_batch.hpp"
#include "table/row_cache.hpp"
#include "table/row_codec.hpp"
#include "table/row_store.hpp"
#include "table/shard.hpp"
#include "table/table_message.hpp"

namespace gradwire::table {

/// A pull from its start to its end.
struct Pull {
  std::uint64_t clock = 0;                          // the caller's when it began
  std::uint64_t needed = 0;                         // the least clock of owners
  bool prefetch = false;                            // its rows go only to the cache
  std::vector<std::uint64_t> ids;                   // ascending, each once
  Floats rows;                                      // from the cache, until an owner has answered
  std::vector<bool> written;                        // this rank pushed to it meanwhile
  std::vector<std::uint32_t> own;                   // places of this rank's own rows that wait for a clock or a file
  bool reads_own = false;                           // they wait for a file
  std::map<int, std::vector<std::uint32_t>> asked;  // by owner: places of the rows it was asked for

  [[nodiscard]] bool done() const noexcept { return own.empty() && asked.empty(); }
};

class Service {
 public:
  struct Envelope {
    int peer;
    TableMessage message;
  };

  /// `options` are valid and outlive the service.
  Service(int rank, int world_size, const TableOptions& options);

  /// Takes a message of another rank. Throws Error(corrupt) for one that is invalid.
  void take(int from, const TableMessage& message);
  [[nodiscard]] std::vector<Envelope> take_outbox();
  /// Whether rows are on their way from a file. advance_reads() takes those that have come.
  [[nodiscard]] bool reads() const noexcept { return !readings_.empty(); }
  void advance_reads();
  /// The error of the file or of memory that left the rows of this rank in disorder; the table must end.
  [[nodiscard]] const std::optional<Error>& broken() const noexcept { return broken_; }
  /// Counts of all messages that ever went into the outbox.
  [[nodiscard]] const Traffic& outgoing() const noexcept { return outgoing_; }

  [[nodiscard]] int owner(std::uint64_t id) const noexcept { return store_.owner(id); }
  /// `ids` are ascending, each once, here and below.
  [[nodiscard]] std::shared_ptr<Pull> start_pull(std::vector<std::uint64_t> ids, bool prefetch);
  /// Whether a prefetch of any of these has not been answered yet.
  [[nodiscard]] bool prefetching(std::span<const std::uint64_t> ids) const;
  /// Describes which ranks an unfinished pull waits for.
  [[nodiscard]] std::string describe_wait(const Pull& pull) const;
  /// `kind` is push or assign. Throws Error(invalid_argument), before any change, for a row that is not finite after
  /// rounding by its codec.
  void write(MessageKind kind, std::span<const std::uint64_t> ids, const float* values);
  void tick();
  [[nodiscard]] std::uint64_t clock() const noexcept { return clocks_.of(rank_); }

  /// Starts a snapshot; its number is the same on every rank. A finished snapshot can be taken once.
  [[nodiscard]] std::uint64_t start_cut();
  [[nodiscard]] std::shared_ptr<const Shard> finished_cut(std::uint64_t number);
  using Exchange = std::pair<std::uint64_t, std::uint64_t>;  // topic, number
  /// Starts an exchange of texts. A text longer than a message may hold is cut.
  [[nodiscard]] Exchange start_exchange(Topic topic, const std::string& mine);
  [[nodiscard]] std::vector<std::string> take_exchanged(const Exchange& exchange);
  /// The ranks whose part is missing, such as "1, 3".
  [[nodiscard]] std::string missing_in_exchange(const Exchange& exchange) const;
  [[nodiscard]] std::string missing_in_cut(std::uint64_t number) const;

  /// Returns a shard without rows, to be filled for replace(). With a store, the rows so far give their memory back.
  [[nodiscard]] Shard begin_replacing();
  /// Replaces all rows by those of `shard`, which are all this rank's. Caches must be distrusted then.
  void replace(Shard shard) { store_.replace(std::move(shard)); }
  /// From here on every cached row is compared with its owner's before it is used again.
  void distrust_cache() noexcept { cache_.distrust(); }
  [[nodiscard]] TableStatistics statistics() const;
  [[nodiscard]] std::uint64_t ages() const noexcept { return age_sum_; }
  [[nodiscard]] std::uint64_t greatest_age() const noexcept { return statistics_.maximum_age; }
  [[nodiscard]] std::uint64_t rows_pulled() const noexcept { return statistics_.rows_pulled; }
  [[nodiscard]] std::uint64_t rows_received() const noexcept { return statistics_.rows_received; }

 private:
  struct Parked {
    int peer;
    PullRequest request;
  };
  struct Cut {
    Shard shard;
    std::vector<bool> marked;  // by rank: its later pushes are not in the snapshot
  };

  /// Rows that a pull asked for, on their way from a file or waiting for that.
  struct Reading {
    enum class For : std::uint8_t { reply, own, later };  // later: a pull that waits for a clock
    For what;
    int peer;  // the rank that asked
    RowBatch rows;
    std::shared_ptr<Pull> pull = {};         // for own rows
    std::vector<std::uint64_t> known = {};   // PullRequest::known, for a reply
    TableMessage reply = {};                 // its head; the payload when all rows are here
    std::vector<std::uint64_t> places = {};  // in the request, of rows that are sent
    wire::Bytes encoded = {};
  };

  void send(int peer, TableMessage message);
  void send_all(const TableMessage& message);
  [[nodiscard]] bool fresh(const RowCache::Entry& entry, std::uint64_t needed) const noexcept;
  void ask(Pull& pull, int peer, const std::vector<std::uint32_t>& places, std::uint64_t number);
  void serve(int peer, PullRequest request);
  void take_reply(int from, const TableMessage& message);
  void keep(const Pull& pull, std::uint32_t place, bool changed, const MessageHead& head);
  void read_own(const std::shared_ptr<Pull>& pull);
  void end_own(Pull& pull, std::uint64_t complete);
  void begin_reading(Reading reading);
  [[nodiscard]] bool advance(Reading& reading);
  /// Calls work(), which reads or changes rows, and notes its error.
  template <class Work>
  auto on_rows(Work work) {
    try {
      return work();
    } catch (...) {
      broken_ = current_error();
      throw;
    }
  }
  void serve_waiting();
  void require_own(int from, std::span<const std::uint64_t> ids) const;
  void write_own(MessageKind kind, int from, std::span<const std::uint64_t> ids, const float* values);
  void mark_written(std::span<const std::uint64_t> ids);
  void mark_cut(std::uint64_t number, int from);
  void count_age(const Pull& pull, std::uint64_t complete);

  int rank_;
  int world_size_;
  const TableOptions& options_;
  RowStore store_;
  RowCodec exact_codec_;
  RankClocks clocks_;
  RowCache cache_;

  std::vector<Envelope> outbox_;
  Traffic outgoing_;
  std::map<std::uint64_t, std::shared_ptr<Pull>> pulls_;  // not done, by number
  std::vector<Parked> parked_;                            // others' pulls that wait for a clock
  std::list<Reading> readings_;
  std::optional<Error> broken_;
  std::map<std::uint64_t, Cut> cuts_;
  std::map<Exchange, std::vector<std::optional<std::string>>> exchanges_;
  std::map<std::uint64_t, std::uint64_t> next_exchange_;  // by topic
  struct {
    std::uint64_t pull = 0, cut = 0;
  } next_;  // numbers

  TableStatistics statistics_;
  std::uint64_t age_sum_ = 0;
};

}  // namespace gradwire::table
